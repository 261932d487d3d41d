"""Programs that look at files and text."""

TABLE = """
ls, dir, vdir | plain
  -aAbBcCdDfFgGhHikLlmnNopqQrRsStuUvxXZ1 -I: -T: -w:
  --all --almost-all --author --escape --block-size= --ignore-backups --color? --directory --dired --classify?
  --file-type --format= --full-time --group-directories-first --no-group --human-readable --si
  --dereference-command-line --dereference-command-line-symlink-to-dir --hide= --hyperlink? --indicator-style= --inode
  --ignore= --kibibytes --dereference --numeric-uid-gid --literal --hide-control-chars --show-control-chars
  --quote-name --quoting-style= --reverse --recursive --size --sort= --time= --time-style= --tabsize= --width=
  --context --zero --help --version

cat | plain
  -AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank --show-tabs --show-nonprinting
  --help --version

head | plain
  -# -qvz -c:: -n:: --bytes== --lines== --quiet --silent --verbose --zero-terminated --help --version

tail | plain
  -# -fFqvz -c:: -n:: -s: --bytes== --lines== --follow? --max-unchanged-stats= --pid= --quiet --silent --retry
  --sleep-interval= --verbose --zero-terminated --help --version

wc | plain
  -cmlLw --bytes --chars --lines --files0-from= --max-line-length --words --total= --debug --help --version

grep, egrep, fgrep | plain deep
  -# -EFGPivwxcLloqsbHhnTZaIrRUyuVz -e:: -f: -m: -A: -B: -C: -D: -d:
  --extended-regexp --fixed-strings --basic-regexp --perl-regexp --regexp== --file= --ignore-case --no-ignore-case
  --invert-match --word-regexp --line-regexp --count --color? --colour? --files-without-match --files-with-matches
  --max-count= --only-matching --quiet --silent --no-messages --byte-offset --with-filename --no-filename --label=
  --line-number --initial-tab --null --after-context= --before-context= --context= --group-separator=
  --no-group-separator --text --binary-files= --devices= --directories= --exclude= --exclude-from= --exclude-dir=
  --include= --recursive --dereference-recursive --line-buffered --binary --null-data --unix-byte-offsets
  --help --version

rg | deep
  -bscFlLhivxnUINo0PpqSauVHw. -A: -B: -C: -E: -d: -e:: -f: -g: -j: -M: -m: -r: -t: -T:
  --after-context= --auto-hybrid-regex --no-auto-hybrid-regex --before-context= --binary --no-binary --block-buffered
  --no-block-buffered --byte-offset --no-byte-offset --case-sensitive --color= --colors= --column --no-column
  --context= --context-separator= --no-context-separator --count --count-matches --crlf --no-crlf --debug
  --dfa-size-limit= --encoding= --no-encoding --engine= --field-context-separator= --field-match-separator= --file=
  --files --files-with-matches --files-without-match --fixed-strings --no-fixed-strings --follow --no-follow
  --generate= --glob= --glob-case-insensitive --no-glob-case-insensitive --heading --no-heading --help --hidden
  --no-hidden --hyperlink-format= --iglob= --ignore --ignore-case --ignore-file= --ignore-file-case-insensitive
  --no-ignore-file-case-insensitive --ignore-dot --ignore-exclude --ignore-files --ignore-global --ignore-messages
  --ignore-parent --ignore-vcs --include-zero --no-include-zero --invert-match --no-invert-match --json --no-json
  --line-buffered --no-line-buffered --line-number --line-regexp --max-columns= --max-columns-preview
  --no-max-columns-preview --max-count= --max-depth= --maxdepth= --max-filesize= --messages --mmap --no-mmap
  --multiline --no-multiline --multiline-dotall --no-multiline-dotall --no-config --no-filename --no-ignore
  --no-ignore-dot --no-ignore-exclude --no-ignore-files --no-ignore-global --no-ignore-messages --no-ignore-parent
  --no-ignore-vcs --no-line-number --no-messages --no-pcre2-unicode --pcre2-unicode --no-require-git --require-git
  --no-unicode --unicode --null --null-data --one-file-system --no-one-file-system --only-matching --passthru
  --passthrough --path-separator= --pcre2 --no-pcre2 --pcre2-version --pretty --quiet --regex-size-limit= --regexp==
  --replace== --no-search-zip --smart-case --sort= --sortr= --sort-files --no-sort-files --stats --no-stats
  --stop-on-nonmatch --text --no-text --threads= --trace --trim --no-trim --type= --type-add= --type-clear=
  --type-list --type-not= --unrestricted --version --vimgrep --with-filename --word-regexp
  ! -z --search-zip --pre= --no-pre --pre-glob= --hostname-bin=

fd, fdfind | exact
  -HIsigFa0Lp1 -d:d -t:n -e: -E: --hidden --no-ignore --case-sensitive --ignore-case --glob --fixed-strings
  --absolute-path --follow --full-path --print0 --max-depth=d --type=n --extension= --exclude= --color=n --help
  --version
  ! -x: -X: -l --exec= --exec-batch= --list-details

find | words
  -H -L -P -O0 -O1 -O2 -O3 -a -o -and -or -not -daystart -follow -depth -d -help --help -version --version
  -ignore_readdir_race -noignore_readdir_race -maxdepth: -mindepth: -mount -xdev -noleaf -warn -nowarn -regextype:
  -amin:: -anewer: -atime:: -cmin:: -cnewer: -ctime:: -empty -executable -false -fstype: -gid:: -group: -ilname:
  -iname:: -inum:: -ipath:: -iregex:: -iwholename:: -links:: -lname:: -mmin:: -mtime:: -name:: -newer: -nogroup
  -nouser -path:: -perm:: -readable -regex:: -samefile: -size:: -true -type: -uid:: -used:: -user: -wholename::
  -writable -xtype: -context: -print -print0 -printf:: -ls -prune -quit
  -neweraa: -neweraB: -newerac: -neweram: -newerat: -newerBa: -newerBB: -newerBc: -newerBm: -newerBt: -newerca:
  -newercB: -newercc: -newercm: -newerct: -newerma: -newermB: -newermc: -newermm: -newermt:
  ! -D: -delete -exec -execdir -ok -okdir -fls: -fprint: -fprint0: -fprintf: -files0-from:

sed, gsed | check=sed
  -nErsuz -e:: -l:d --quiet --silent --debug --expression== --follow-symlinks --line-length=d --posix
  --regexp-extended --separate --sandbox --unbuffered --null-data --zero-terminated --help --version
  ! -i? --in-place? -f: --file= -b --binary

sort
  -bdfgiMhnRrVcCmsuz -k: -S: -t: --ignore-leading-blanks --dictionary-order --ignore-case --general-numeric-sort
  --ignore-nonprinting --month-sort --human-numeric-sort --numeric-sort --random-sort --random-source= --reverse
  --sort= --version-sort --batch-size= --check? --debug --key= --merge --stable --buffer-size=
  --field-separator= --parallel= --unique --zero-terminated --help --version
  ! -o: -T: --output= --temporary-directory= --compress-program= --files0-from=

uniq | operands=1
  -cdDiuz -f: -s: -w: --count --repeated --all-repeated? --skip-fields= --group? --ignore-case --skip-chars= --unique
  --zero-terminated --check-chars= --help --version

cut | plain
  -nsz -b: -c: -d:: -f: --bytes= --characters= --delimiter== --fields= --complement --only-delimited
  --output-delimiter== --zero-terminated --help --version

tr | plain
  -cCdst --complement --delete --squeeze-repeats --truncate-set1 --help --version

nl, tac, rev, paste, comm, cmp, join, expand, unexpand, fold, fmt, tsort | plain
  -# -bcpqrstuznA -a: -d: -e: -f: -g: -h: -i: -j: -l: -n: -o: -v: -w: --bytes --spaces --width= --tabs= --serial
  --delimiters= --zero-terminated --before --regex --separator= --check-order --nocheck-order --output-delimiter=
  --total --print-bytes --silent --quiet --verbose --ignore-initial= --header --split-only --uniform-spacing
  --body-numbering= --number-width= --number-format= --help --version

column | plain
  -tdxeLnJ -s: -o: -c: -N: -R: -W: -H: -T: -E: -O: -l: --table --separator= --output-separator= --output-width=
  --table-columns= --table-right= --json --help --version

basename, dirname, realpath, readlink | plain
  -aezsqmLPfnv --multiple --zero --suffix= --canonicalize --canonicalize-existing --canonicalize-missing --strip
  --no-symlinks --logical --physical --quiet --relative-to= --relative-base= --no-newline --verbose --help --version
  -s:

echo, true, false | plain free
printf | plain free check=printf
pwd, tty, whoami, nproc, arch | plain operands=none
  -LPfs --logical --physical --silent --quiet --all --ignore= --help --version
groups, sleep, factor | plain
  -LPfswaz --logical --physical --silent --quiet --all --ignore= --help --version
seq | plain
  -# -w -f: -s:: --format= --separator== --equal-width --help --version

od, hexdump, hd | plain
  -abcdfhilosvxCDeLXq -A: -e: -j: -n: -N: -s: -t: -w? -f: -T: --address-radix= --endian= --skip-bytes= --read-bytes=
  --strings? --format= --output-duplicates --width? --traditional --all --bytes= --radix= --encoding=
  --print-file-name --canonical --no-squeezing --length= --skip= --help --version

strings
  -afo -n:d -t:n -e:n --all --print-file-name --bytes=d --radix=n --encoding=n --help --version

xxd | words operands=1
  -a -autoskip -b -bits -C -capitalize -d -E -EBCDIC -e -i -include -p -ps -plain -postscript -u -v -version -h
  -c:d -g:d -l:d -n:n -o:d -s::
  ! -r -revert -R:

md5sum, sha1sum, sha224sum, sha256sum, sha384sum, sha512sum, b2sum, cksum, sum | plain
  -bctzwqsr -a: -l: --algorithm= --binary --check --tag --text --zero --ignore-missing --quiet --status --strict
  --warn --length= --raw --base64 --untagged --debug --help --version

base64, base32, basenc
  -diD -w: --decode --ignore-garbage --wrap= --base64 --base64url --base32 --base16 --help --version

diff | deep
  -# -qscuentyTprNiEZbwBad -C: -U: -W: -F: -L: -x: -X: -S: -I: -D: -v --normal --brief --report-identical-files
  --context? --unified? --ed --rcs --side-by-side --width= --left-column --suppress-common-lines --show-c-function
  --show-function-line= --label= --expand-tabs --initial-tab --tabsize= --suppress-blank-empty --recursive
  --no-dereference --new-file --unidirectional-new-file --ignore-file-name-case --no-ignore-file-name-case --exclude=
  --exclude-from= --starting-file= --from-file=i --to-file=i --ignore-case --ignore-tab-expansion
  --ignore-trailing-space --ignore-space-change --ignore-all-space --ignore-blank-lines --ignore-matching-lines=
  --text --strip-trailing-cr --ifdef= --line-format= --old-line-format= --new-line-format= --unchanged-line-format=
  --old-group-format= --new-group-format= --unchanged-group-format= --changed-group-format= --minimal
  --horizon-lines= --speed-large-files --color? --palette= --help --version
  ! -l --paginate

file
  -bcdEhikLNnr0v -e: -f: -F: -P: --apple --brief --checking-printout --debug --exclude= --exclude-quiet= --extension
  --files-from= --separator= --no-dereference --mime --mime-type --mime-encoding --keep-going --list -l
  --dereference --no-pad --no-buffer --parameter= --raw --print0 --version --help
  ! -C -p -z -Z -s -S -m: --preserve-date --compile --uncompress --uncompress-noreport --special-files --no-sandbox
  ! --magic-file=

stat | plain
  -Lft -c:: --dereference --file-system --cached= --format== --printf== --terse --help --version

du | plain
  -0abcDHhklLmPsSx -B: -d: -t:: -X: --null --all --apparent-size --block-size= --bytes --total --dereference-args
  --max-depth= --files0-from= --human-readable --inodes --dereference --count-links --no-dereference --separate-dirs
  --si --summarize --threshold== --time? --time-style= --exclude-from= --exclude= --one-file-system --help --version

df | plain
  -ahHiklPTv -B: -t: -x: --all --block-size= --human-readable --si --inodes --local --no-sync --output? --portability
  --sync --total --type= --print-type --exclude-type= --help --version

tree
  -adlfxqNQpugshDFvtcUriASnCXJ -L:s -P:s -I:s -H:s -T:s --gitignore --gitfile= --ignore-case --matchdirs --prune
  --metafirst --info --infofile= --noreport --charset= --filelimit= --timefmt= --si --du --inodes --device
  --dirsfirst --filesfirst --sort= --hintro= --houtro= --nolinks --fromfile --fromtabfile --fflinks --hyperlink
  --scheme= --authority= --opt-toggle --help --version
  ! -o: -R --output=

jq | plain
  -nrjacsRSCMehVb -f: -L: --null-input --raw-input --raw-output --raw-output0 --join-output --ascii-output
  --compact-output --slurp --sort-keys --color-output --monochrome-output --tab --indent= --unbuffered --stream
  --stream-errors --seq --exit-status --from-file= --library-path= --arg --argjson --slurpfile --rawfile --argfile
  --args --jsonargs --binary --build-configuration --debug-dump-disasm --debug-trace? --help --version
  ! --run-tests?

zcat, bzcat, xzcat | operands=inside
  -fqv --force --quiet --verbose --help --version
"""
