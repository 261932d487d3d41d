"""Package managers and archives."""

TABLE = """
npm test, npm t, npm tst, npm run, npm run-script, pnpm test, pnpm t, pnpm run, yarn test,
yarn run | operands=inside after=ask check=script
  -sdv --silent --verbose --quiet --no-color --color --if-present --no-progress --no-fund --no-audit
  --no-update-notifier --workspaces --include-workspace-root --foreground-scripts? --ignore-scripts --timing?
  ! -w: -C: -g --workspace= --prefix= --script-shell= --node-options= --userconfig= --globalconfig=
  ! --global --loglevel=
npm ls, npm list, npm why, npm explain | exact operands=names
  -alp --all --long --json --parseable --depth=d --production --prod --dev --silent --no-color
npm fund, npm root, npm prefix | exact operands=none
  --json --silent --no-color --production

@pip
  -vq --verbose --quiet --no-color --disable-pip-version-check
  ! --log= --local-log= --log-file= -i: --index-url=
pip list | exact operands=none check=piplist
  @pip -l --local --user --format=n --not-required --exclude-editable --editable
  ! -o -u -f: --outdated --uptodate --find-links=
pip show | exact operands=names
  @pip -f --files
pip check | exact operands=none
  @pip
apt list, apt show, apt search, apt policy, apt-cache policy, apt-cache show, apt-cache search, apt-cache depends,
apt-cache rdepends, dpkg -l, dpkg -L, dpkg -s, dpkg -S, dpkg-query -W | exact operands=names
  -a --installed --upgradable --all-versions --names-only

@cargo
  -qvh -F: --quiet --verbose --color= --message-format= --features= --all-features --no-default-features --locked
  --offline --frozen --future-incompat-report --help
  ! -Z: -C: --config= --manifest-path= --target-dir= --artifact-dir= --out-dir= --lockfile-path= --timings?
  ! --unit-graph --build-plan --ignore-rust-version
@cargobuild
  @cargo -r -p: -j: --package= --workspace --all --exclude= --lib --bins --bin= --examples --example= --tests --test=
  --benches --bench= --all-targets --release --profile= --jobs= --keep-going --target=n
cargo build, cargo b, cargo check, cargo c, cargo doc | exact operands=none after=ask
  @cargobuild --no-deps --document-private-items
  ! --open
cargo test, cargo t | exact operands=inside after=+libtest
  @cargobuild --doc --no-run --no-fail-fast
+libtest | exact
  -q --nocapture --no-capture --show-output --test-threads= --skip= --exact --ignored --include-ignored --list
  --quiet --test --bench --color= --format=n --report-time? --ensure-time
  ! --logfile= --force-run-in-process --exclude-should-panic --shuffle --shuffle-seed= -Z:
cargo clippy | exact operands=none after=+lints
  @cargobuild --no-deps --explain= -V --version
  ! -W: -A: -D: --fix --allow-dirty --allow-staged --allow-no-vcs --broken-code --edition-idioms
+lints | exact operands=none
  -D:l -W:l -A:l -F:l --deny=l --warn=l --allow=l --forbid=l --cap-lints=l
cargo fmt | exact changes operands=none after=+rustfmt
  -qvh -p: --all --check --quiet --verbose --package= --version --help
  ! --manifest-path= --message-format=
+rustfmt | exact operands=none
  -lqv --check --edition=n --color= --quiet --verbose
cargo tree, cargo metadata, cargo version | exact operands=names
  @cargo -dpeif -e: -i? -p: -f: --edges= --invert? --prune= --depth= --prefix= --no-dedupe --duplicates --charset=
  --format= --workspace --exclude= --target=n --package= --no-deps --filter-platform=n --format-version= --limit=
@go
  -v -x -n -a -p: -race -msan -asan -cover -covermode: -coverpkg: -work -buildmode:n -buildvcs? -compiler:n
  -modcacherw -tags: -trimpath -linkshared -installsuffix:n -json
  ! -mod: -o: -C: -exec: -toolexec: -overlay: -modfile: -pkgdir: -ldflags: -gcflags: -asmflags: -gccgoflags: -pgo:
  ! -debug-actiongraph: -debug-trace: -debug-runtime-trace:
go build, go vet | words equals operands=inside double check=go
  @go
  ! -vettool: -c: -fix -diff
go test | words equals operands=inside double check=go
  @go -bench: -benchtime: -count: -cpu: -failfast -fullpath -list: -parallel: -run:: -short -shuffle: -skip: -timeout:
  -vet:n -benchmem -blockprofilerate: -memprofilerate: -mutexprofilefraction:
  ! -c -i -args -fuzz: -fuzztime: -fuzzminimizetime: -fuzzcachedir: -outputdir: -blockprofile: -coverprofile:
  ! -cpuprofile: -memprofile: -mutexprofile: -trace: -artifacts
go version | words equals operands=inside double
  -m -v -json
go list | words equals operands=inside double check=golist
  -m -f:: -json -deps -test -e -u -versions -all -src -short -c -cmd -vendor -v -find -retracted
  ! -export -compiled -toolexec: -modfile: -overlay: -exec: -http
go env | exact words operands=names double
  -json -changed
  ! -w -u
go fmt | exact changes words operands=inside double check=go
  -n -x
  ! -mod: -modfile:

unzip -l, gzip -l, xz -l | exact operands=inside
"""
