"""Package managers, archivers and media files."""

TABLE = """
npm test, npm t, npm tst, npm run, npm run-script, pnpm test, pnpm t, pnpm run, yarn test,
yarn run | operands=inside after=ask check=script at
  -sdv --silent --verbose --quiet --no-color --color --if-present --no-progress --no-fund --no-audit
  --no-update-notifier --workspaces --include-workspace-root --foreground-scripts? --ignore-scripts --timing?
  ! -w: -C: -g --workspace= --prefix= --script-shell= --node-options= --userconfig= --globalconfig=
  ! --global --loglevel=
npm ls, npm list, npm ll, npm la, npm outdated, npm why, npm explain, npm ping, npm root,
npm prefix, npm search, npm pkg get, npm audit, npm whoami,
pnpm list, pnpm ls, pnpm outdated, pnpm why | check=audit
  -alpgs --all --long --json --parseable --global --depth= --omit= --include= --production --prod --dev --silent
  --link --package-lock-only --unicode --workspaces --audit-level= --no-color
npm view, npm info, npm show | check=registry
  -gs --json --silent --no-color --workspaces
npm fund | operands=none
  -s --json --silent --no-color --workspaces --unicode

pip list, pip show, pip freeze, pip check, pip index versions, uv pip list, uv pip show, uv pip freeze, uv pip check,
uv python list, poetry show, conda list, conda info, conda env list, mamba list, pipdeptree, pipx list,
gem list
  -oluevqa --outdated --uptodate --local --user --format= --not-required --verbose --quiet --files --all
  --exclude-editable --editable --pre --no-color --tree --latest --top-level --no-dev --depth= --json --invert --warn=
  --reverse --packages= --exclude= --envs --disable-pip-version-check

apt list, apt show, apt search, apt policy, apt-cache policy, apt-cache show, apt-cache search, apt-cache depends,
apt-cache rdepends, dpkg -l, dpkg -L, dpkg -s, dpkg -S, dpkg --list, dpkg --listfiles, dpkg --status, dpkg --search,
dpkg-query -W, rpm -q, rpm -qa, rpm -qi, rpm -ql, apk info, pacman -Q, pacman -Qi
  -a --installed --upgradable --all-versions --names-only --versions --cask --formula --json

brew list, brew info, brew outdated | check=formula
  --installed --versions --cask --formula --json

@cargo
  -qvh -F: --quiet --verbose --color= --message-format= --features= --all-features --no-default-features --locked
  --offline --frozen --future-incompat-report --help
  ! -Z: -C: --config= --manifest-path= --target-dir= --artifact-dir= --out-dir= --lockfile-path= --timings?
  ! --unit-graph --build-plan --ignore-rust-version
@cargobuild
  @cargo -r -p: -j: --package= --workspace --all --exclude= --lib --bins --bin= --examples --example= --tests --test=
  --benches --bench= --all-targets --release --profile= --jobs= --keep-going --target=n
cargo build, cargo b, cargo check, cargo c, cargo doc | operands=none after=ask split at
  @cargobuild --no-deps --document-private-items
  ! --open
cargo test, cargo t | operands=inside after=+libtest split at
  @cargobuild --doc --no-run --no-fail-fast
cargo nextest run | operands=inside after=+libtest at
  @cargobuild -E: --no-run --no-fail-fast --filter-expr= --test-threads= --retries= --no-capture --nocapture
  --run-ignored= --failure-output= --success-output= --status-level= --final-status-level=
+libtest | operands=any split at
  -q --nocapture --no-capture --show-output --test-threads= --skip= --exact --ignored --include-ignored --list
  --quiet --test --bench --color= --format=n --report-time? --ensure-time
  ! --logfile= --force-run-in-process --exclude-should-panic --shuffle --shuffle-seed= -Z:
cargo clippy | operands=none after=+lints split at
  @cargobuild --no-deps --explain= -V --version
  ! -W: -A: -D: --fix --allow-dirty --allow-staged --allow-no-vcs --broken-code --edition-idioms
+lints | operands=none
  -D:l -W:l -A:l -F:l --deny=l --warn=l --allow=l --forbid=l --cap-lints=l
cargo fmt | operands=none after=+rustfmt split at
  -qvh -p: --all --check --quiet --verbose --package= --version --help
  ! --manifest-path= --message-format=
+rustfmt | operands=none
  -lqv --check --edition=n --color= --quiet --verbose
cargo tree, cargo metadata, cargo search, cargo info, cargo pkgid, cargo version,
cargo verify-project, cargo --list
  @cargo -dpeif -e: -i? -p: -f: --edges= --invert? --prune= --depth= --prefix= --no-dedupe --duplicates --charset=
  --format= --workspace --exclude= --target=n --package= --no-deps --filter-platform=n --format-version= --limit=
rustup show, rustup toolchain list, rustup target list, rustup component list
  -v --installed --verbose --quiet

@go
  -v -x -n -a -p: -race -msan -asan -cover -covermode: -coverpkg: -work -buildmode:n -buildvcs? -compiler:n -mod:n
  -modcacherw -tags: -trimpath -linkshared -installsuffix:n -json
  ! -o: -C: -exec: -toolexec: -overlay: -modfile: -pkgdir: -ldflags: -gcflags: -asmflags: -gccgoflags: -pgo:
  ! -debug-actiongraph: -debug-trace: -debug-runtime-trace:
go build, go vet | words equals operands=inside double
  @go
  ! -vettool: -c: -fix -diff
go test | words equals operands=inside double
  @go -bench: -benchtime: -count: -cpu: -failfast -fullpath -list: -parallel: -run:: -short -shuffle: -skip:: -timeout:
  -vet:n -benchmem -blockprofilerate: -memprofilerate: -mutexprofilefraction:
  ! -c -i -args -fuzz: -fuzztime: -fuzzminimizetime: -fuzzcachedir: -outputdir: -blockprofile: -coverprofile:
  ! -cpuprofile: -memprofile: -mutexprofile: -trace: -artifacts
go list, go doc, go version, go mod graph, go mod why, go mod verify | words equals operands=inside double
  -m -f:: -json -deps -test -e -u -versions -all -src -short -c -cmd -vendor -v -find -retracted
  ! -export -compiled -toolexec: -modfile: -overlay: -exec: -http
go env | words equals operands=any double
  -json -changed
  ! -w -u
go fmt | words equals operands=inside double
  -n -x
  ! -mod: -modfile:

dotnet build, dotnet test, dotnet list | operands=inside at check=settings
  -ht -c:p -v:n -f:p --configuration=n --verbosity=n --nologo --no-restore --no-build --no-incremental --framework=n
  --filter=p --list-tests --blame? --outdated --include-transitive --deprecated --vulnerable
  ! -p: -o: -s: -l: -a: -e: -r: -d: --property= --output= --settings= --logger= --test-adapter-path= --environment=
  ! --results-directory= --diag= --runtime= --source= --collect= --arch= --os=

unzip -Z, zipinfo | after=ask
  -12shmltTvzC
unzip -l, unzip -v | after=ask
  -vq
gzip -l, xz -l, zstd -l
  -vq
7z l, 7za l | words
  -slt -ba -bd
ffprobe | words check=media
  -v: -loglevel: -hide_banner -i: -show_format -show_streams -show_entries: -show_packets -show_frames -show_chapters
  -show_error -of: -print_format: -output_format: -select_streams: -pretty -count_frames -count_packets
  -read_intervals: -sections -unit -sexagesimal -version
mediainfo, pdfinfo, soxi | after=ask check=media
  -fl --Full --Output=n --Version --help
exiftool | words check=media
  -a -G -G1 -s -S -j -json -n -ver -h -q -g -e -u -U -fast -fast2 -r -c: -d: -ee
  ! -if: -p: -w: -config: -@: -o: -X -tagsFromFile: -execute -stay_open: -b -TagsFromFile:
"""
