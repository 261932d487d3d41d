"""Test runners, linters, compilers and build tools."""

TABLE = """
pytest, py.test, python -m pytest | operands=inside
  -qvxslVh -k:w -m:w -r: -n: -p:u --quiet --verbose --verbosity= --exitfirst --showlocals --no-showlocals --capture=
  --maxfail= --tb= --co --collect-only --lf --last-failed --ff --failed-first --nf --new-first --sw --stepwise
  --sw-skip --stepwise-skip --sw-reset --stepwise-reset --last-failed-no-failures= --lfnf= --cache-show? --cache-clear
  --no-header --no-summary --no-fold-skipped --force-short-summary --color= --code-highlight= --durations=
  --durations-min= --full-trace --show-capture= --disable-warnings --disable-pytest-warnings --strict --strict-config
  --strict-markers --ignore= --ignore-glob= --deselect= --runxfail --markers --fixtures --funcargs
  --fixtures-per-test --setup-show --setup-only --setup-plan --keep-duplicates --noconftest --doctest-modules
  --doctest-report= --doctest-continue-on-failure --doctest-glob= --doctest-ignore-import-errors
  --continue-on-collection-errors --collect-in-virtualenv --disable-plugin-autoload --trace-config --xfail-tb
  --assert= --junit-prefix= --junitprefix= --import-mode= --log-level= --log-cli-level= --log-format=
  --log-cli-format= --log-date-format= --log-cli-date-format= --log-auto-indent= --log-disable= --log-file-level=
  --log-file-format= --log-file-date-format= --log-file-mode= --max-warnings=
  --numprocesses= --maxprocesses= --dist= --timeout= --timeout-method= --session-timeout= --cov? --no-cov
  --cov-branch --cov-fail-under= --no-cov-on-fail --cov-append --cov-report=t --reruns= --reruns-delay= --count=
  --randomly-seed= --asyncio-mode= --anyio-mode= --hypothesis-seed= --hypothesis-profile=
  --hypothesis-show-statistics --hypothesis-verbosity= --hypothesis-explain --benchmark-skip --benchmark-disable
  --benchmark-only --loadscope-reorder --no-loadscope-reorder --max-worker-restart= --maxschedchunk= --testrunuid=
  --timeout-disable-debugger-detection --timeout_method= --report-chars= --version --help
  ! -d -f --px= --tx= --rsyncdir= --rsyncignore= --looponfail -c: -o: -W: -L? --config-file=
  ! --override-ini= --pythonwarnings= --rootdir= --basetemp= --confcutdir= --pdb --pdbcls= --trace --pastebin=
  ! --junit-xml= --junitxml= --log-file= --debug? --pyargs

jest | exact operands=inside
  -i -t:s --silent --verbose --color --no-color --runInBand --bail --ci --listTests --passWithNoTests --testNamePattern=
  --maxWorkers=d --detectOpenHandles --forceExit --onlyChanged --no-cache --testTimeout=d --version --help
eslint | exact operands=inside
  -hv --max-warnings=d --quiet --ext= --no-error-on-unmatched-pattern --color --no-color --help --version --no-ignore
  --no-inline-config --report-unused-disable-directives --no-warn-ignored
  ! -c: -o: -f: --config= --rulesdir= --plugin= --parser= --resolve-plugins-relative-to= --fix --fix-dry-run --fix-type=
  ! --output-file= --format= --cache --cache-location= --cache-file= --init --inspect-config --flag= --mcp
prettier | exact operands=inside
  -clu --check --list-different --log-level=n --ignore-unknown --no-color --no-config --no-editorconfig --version --help
  ! -w --write --plugin= --plugin-search-dir= --config= --parser= --cache --cache-location= --find-config-path=
tsc | exact words operands=inside
  --noEmit --pretty --strict --skipLibCheck --version -v --listFiles --listFilesOnly --showConfig --explainFiles
  --diagnostics --help -h --all --project:i -p:i

ruff check, ruff rule, ruff version | exact operands=inside
  -qsv --quiet --silent --verbose --select= --ignore= --extend-select= --extend-ignore= --statistics --output-format=n
  --show-files --show-settings --no-cache -n --preview --no-preview --diff --no-fix --exit-zero --target-version=n
  --line-length=d --isolated --all --help --version --color=n
  ! -o: --fix --fix-only --unsafe-fixes --add-noqa? --config= --output-file= --cache-dir= --watch
ruff format, black | exact operands=write
  -qv -l:d --check --diff --color --quiet --verbose --line-length=d --preview --version --help
  ! -c: --config= --code= --stdin-filename= --cache-dir= --workers=
isort | exact operands=write
  -qv --check-only --check --diff --quiet --verbose --version
mypy | exact operands=inside
  -vhV -p: -m: --package= --module= --strict --ignore-missing-imports --no-incremental --pretty --show-error-codes
  --show-error-context --show-column-numbers --no-error-summary --no-color-output --python-version= --follow-imports=n
  --namespace-packages --explicit-package-bases --disallow-untyped-defs --check-untyped-defs --no-implicit-optional
  --warn-unused-ignores --warn-return-any --warn-unreachable --disable-error-code= --enable-error-code= --verbose --help
  --version
  ! -c: --command= --config-file= --python-executable= --cache-dir= --install-types --junit-xml= --timing-stats=
pyright, basedpyright | exact operands=inside
  --outputjson --verbose --stats --level=n --warnings --version --help
  ! -p: -v: -t: --project= --pythonpath= --venvpath= --typeshedpath= --createstub= --writebaseline --baselinefile=
pylint | exact operands=inside
  -Evh -d: -e: -j:d --errors-only --disable= --enable= --jobs=d --verbose --max-line-length=d --version --help
  ! -f: --output-format= --init-hook= --load-plugins= --rcfile= --output=
flake8, pycodestyle, pyflakes | exact operands=inside
  -qvh --quiet --verbose --select= --ignore= --extend-ignore= --extend-select= --max-line-length=d --count --statistics
  --show-source --exclude= --max-complexity=d --exit-zero --version --help
  ! --config= --append-config= --output-file= --tee --format= --enable-extensions= --require-plugins=
shellcheck | exact operands=inside
  -xV -e: -f:n -i: -s:n -S:n --exclude= --format=n --include= --norc --shell=n --severity=n --external-sources
  --version
  ! -a --check-sourced
golangci-lint run | exact operands=inside
  -v -E: -D: --fast --timeout= --enable= --disable= --enable-only= --new-from-rev=r --verbose --color=n --help
  ! -c: --fix --config= --out-format= --path-prefix= --cpu-profile-path= --mem-profile-path= --trace-path=
gofmt | exact words operands=inside
  -l -d -s -e
  ! -w -r: -cpuprofile: -local: -srcdir:

make -n, make --dry-run, make --just-print, gmake -n | operands=target
  -nBdikLqrRsSwpbm -j? -l? -O? --dry-run --just-print --recon --always-make --debug? --ignore-errors --jobs?
  --keep-going --load-average? --max-load? --check-symlink-times --output-sync? --print-data-base --question
  --no-builtin-rules --no-builtin-variables --silent --quiet --no-silent --no-keep-going --stop --trace
  --print-directory --no-print-directory --warn-undefined-variables --shuffle?
  ! -C: -e -E: -f: -I: -o: -t -W: -v -h --directory= --environment-overrides --eval= --file= --makefile= --include-dir=
  ! --old-file= --assume-old= --touch --what-if= --new-file= --assume-new= --jobserver-style= --jobserver-fds=
  ! --jobserver-auth= --help --version --temp-stdin= --warn?

gcc --version, g++ --version, cc --version, clang --version, clang++ --version, rustc --version, rustc -V,
javac -version, java -version, java --version, node --version, node -v, python --version, python -V, ruby --version,
ruby -v, php --version, php -v, perl --version, perl -v, cmake --version, make --version, bash --version,
uv --version, pip --version, tar --version, openssl version, psql --version, sqlite3 --version, rsync --version,
git --version, npm --version, npm -v, cargo --version, cargo -V, docker --version, docker -v,
gh --version | exact operands=none
"""
