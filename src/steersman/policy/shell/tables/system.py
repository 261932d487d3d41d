"""Programs that look at the machine, its processes and the network, and those whose purpose is to change files."""

TABLE = """
ps | check=ps
  -AefFlwH -p:d -q:d -o: --pid=d --ppid=d --quick-pid=d --format= --cols=d --columns=d --forest --no-headers
  --no-heading --headers --heading --lines=d --rows=d --sort= --width=d --info --help? --version
  ! -adNcjMPyLmTVZ -O: --deselect --context --cumulative
  ! -C: -G: -g: -s: -t: -U: -u: -n: --Group= --group= --sid= --tty= --User= --user=

pgrep
  -acflnoivwx -d: -G: -g: -P: -s: -t: -u: -U: --count --full --ignore-case --list-name --list-full --newest --oldest
  --parent= --user= --exact --inverse --help --version

date | check=date
  -uR -d:: -I? -r: --date== --debug --iso-8601? --rfc-email --rfc-3339= --reference= --utc --universal --resolution
  --help --version
  ! -s: -f: --set= --file=

hostname | operands=none
  -afAdiIsyV --alias --all-fqdns --all-ip-addresses --domain --fqdn --long --ip-address --short --help --version
  ! -F: -b --file= --boot

id, uname, uptime, locale | plain
  -acghikmnoprsuvzGVZ --all --pretty --since --context --group --groups --name --user --real --zero --kernel-name
  --nodename --kernel-release --kernel-version --machine --processor --hardware-platform --operating-system
  --all-locales --charmaps --category-name --keyword-name --verbose --help --version
free | plain
  -bghklmtvwLV -s: -c: --bytes --kilo --mega --giga --tera --kibi --mebi --gibi --human --si --lohi --line --total
  --committed --wide --seconds= --count= --help --version
lscpu | plain
  -abchxyBJV -e? -p? -C? -s: --all --online --offline --bytes --json --hex --physical --extended? --parse? --caches?
  --sysroot= --output-all --help --version
lsblk | plain
  -abdfhilmnprstyzADJMNOPSVZ -o: -e: -I: -x: -w: -E: -T? --all --bytes --nodeps --fs --ascii --list --perms --noheadings
  --paths --raw --inverse --topology --shell --zoned --noempty --discard --json --merge --output-all --pairs --scsi
  --output= --exclude= --include= --sort= --width= --dedup= --tree? --help --version

who, w | exact operands=names
  -abdfHhilmopqrstTuw --all --boot --count --dead --heading --help --ips --message --mesg --no-header --process
  --runlevel --short --time --users --version --writable
  ! --lookup

which, whereis, type, command -v | plain
  -abflmstupP -B: -M: -S: --all --skip-alias --help --version

printenv | plain
  -0 --null --help --version

getent | exact operands=names check=getent
dig, host | exact sends operands=names
  -46 -t:n
ping | exact sends operands=names
  -46nq -c:d -i:d -W:d -w:d
ss, netstat | exact operands=none
  -nalepstuwxir46 --numeric --all --listening --extended --processes --tcp --udp --unix
  ! -K -D: -F: --kill --diag= --filter=
lsof | check=lsof
  -nPtl -i? -p:d -s? -u:n
  ! -D: -k: -m: -A: -r?
ip addr, ip a, ip address, ip link, ip route, ip r, ip neigh, ip addr show, ip a show, ip link show,
ip route show | words operands=none
systemctl status, systemctl is-active, systemctl is-enabled, systemctl list-units, systemctl list-unit-files,
systemctl list-timers, systemctl show, systemctl cat | exact operands=names
  -al -n:d --all --full --lines=d --no-pager --plain --no-legend --user --system --quiet --failed
journalctl | exact operands=none
  -aefkqrx -n:d -u: --all --dmesg --follow --list-boots --no-pager --no-tail --quiet --reverse --since= --until= --unit=
  --user --utc --disk-usage --help --version
dmesg | exact operands=none
  -dehHkLrtTux --ctime --decode --human --kernel --nopager --notime --raw --userspace --help --version
  ! -c -C -D -E -n: -F: --read-clear --clear --console-off --console-on --console-level= --file=
nvidia-smi | exact operands=none
  -Lq -i:d --list-gpus --query --query-gpu= --query-compute-apps= --format=

curl | sends check=curl
  -fsSLiIv46gGN0V -X: -H: -A: -e: -m: -r: -z: -o: -w: --fail --fail-with-body --silent --show-error --location
  --include --head --verbose --ipv4 --ipv6 --globoff --get --no-buffer --request= --header= --user-agent= --referer=
  --max-time= --range= --time-cond= --connect-timeout= --compressed --retry= --retry-delay= --retry-max-time=
  --retry-connrefused --retry-all-errors --max-redirs= --max-filesize= --http1.0 --http1.1 --http2 --http3
  --no-progress-meter --output= --write-out= --tlsv1.2 --tlsv1.3 --version
  ! -d: -F: -T: -K: -O -J -D: -c: -b: -u: -n -k -x: -E: -Z --data= --config= --upload-file= --url= --next

mkdir | operands=write
  -pv --parents --verbose --help --version
touch | operands=write
  -achm -d: -r: -t: --no-create --date= --reference= --time= --no-dereference --help --version
cp | operands=write
  -finpuvTLH --force --interactive --no-clobber --update? --verbose --no-target-directory --dereference --help --version
  ! -a -d -l -P -r -R -s -t: -S: -b -x -Z --archive --recursive --no-dereference --preserve? --parents --link
  ! --one-file-system --symbolic-link --target-directory= --backup? --suffix= --remove-destination
mv | operands=write
  -finuvT --force --interactive --no-clobber --update? --verbose --no-target-directory --help --version
  ! -t: -b -S: --target-directory= --backup? --suffix= --exchange
rm | operands=write
  -fivId --force --interactive? --verbose --dir --preserve-root? --one-file-system --help --version
  ! -r -R --recursive --no-preserve-root
rmdir | operands=write
  -pv --parents --verbose --ignore-fail-on-non-empty --help --version
chmod | operands=write check=chmod
  -cfv --changes --silent --quiet --verbose --help --version
  ! -R --recursive --reference=
tee | operands=write
  -aip --append --ignore-interrupts --output-error? --help --version
shuf | operands=1
  -erz -i: -n: --echo --input-range= --head-count= --repeat --zero-terminated --help --version
  ! -o: --output= --random-source=
iconv
  -cls -f:n -t:n --from-code=n --to-code=n --list --silent --help --version
  ! -o: --output=
"""
