"""Test runners, linters, compilers and build tools."""

TABLE = """
pytest, py.test, python -m pytest | operands=inside at
  -qvxslVh -k: -m: -r: -n: -p:u --quiet --verbose --verbosity= --exitfirst --showlocals --no-showlocals --capture=
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

jest | operands=inside at
  -isvbo -t:s -w:s --silent --verbose --color --colors --no-color --runInBand --bail? --ci --listTests --passWithNoTests
  --testNamePattern= --maxWorkers= --detectOpenHandles --forceExit --onlyChanged --onlyFailures --no-cache
  --testTimeout= --version --help
playwright test | operands=inside at
  --version --help
mocha, vitest, ava | operands=inside at check=audit
  -svb -g:s -t:s --silent --verbose --color --no-color --bail --grep= --timeout= --run --testNamePattern=
  --passWithNoTests --version --help

eslint | operands=inside at
  -hv -f:e --max-warnings= --quiet --ext= --no-error-on-unmatched-pattern --color --no-color --debug --help --version
  --ignore-pattern= --no-ignore --no-inline-config --report-unused-disable-directives --no-eslintrc --rule= --global=
  --env= --print-config=i --format=e --stdin --stdin-filename=i --no-warn-ignored
  ! -c: -o: --config= --rulesdir= --plugin= --parser= --resolve-plugins-relative-to= --fix --fix-dry-run --fix-type=
  ! --output-file= --cache --cache-location= --cache-file= --cache-strategy= --init --inspect-config --flag= --mcp
prettier | operands=inside at
  -clu --check --list-different --log-level= --loglevel= --ignore-path= --ignore-unknown --no-color --no-config
  --no-editorconfig --print-width= --tab-width= --use-tabs --single-quote --no-semi --stdin-filepath=i --version --help
  ! -w --write --plugin= --plugin-search-dir= --config= --parser= --cache --cache-location= --find-config-path=
biome check, biome lint, biome ci | operands=inside at
  --changed --staged --no-errors-on-unmatched --max-diagnostics= --diagnostic-level= --colors= --verbose
oxlint, stylelint, markdownlint | operands=inside at
  -q --quiet --max-warnings= --color --no-color --deny-warnings --json -j --version --help

tsc | words operands=inside at
  --noEmit --pretty --strict --skipLibCheck --watch -w --version -v --listFiles --listFilesOnly --showConfig
  --explainFiles --diagnostics --extendedDiagnostics --noErrorTruncation --help -h --all --project:i -p:i
  --noUnusedLocals --noUnusedParameters --esModuleInterop --resolveJsonModule --allowJs --checkJs --target:n --jsx:n
  --module:n --moduleResolution:n --lib:n

ruff check, ruff linter, ruff rule, ruff version | operands=inside at
  -qsvewh --quiet --silent --verbose --select= --ignore= --extend-select= --extend-ignore= --statistics
  --output-format= --show-files --show-settings --no-cache -n --preview --no-preview --diff --no-fix --exit-zero
  --exit-non-zero-on-fix --target-version= --line-length= --exclude= --extend-exclude= --respect-gitignore
  --no-respect-gitignore --force-exclude --isolated --watch --per-file-ignores= --stdin-filename= --explain --all
  --help --version --color=
  ! -o: --fix --fix-only --no-fix-only --unsafe-fixes --no-unsafe-fixes --add-noqa? --add-ignore? --config=
  ! --output-file= --cache-dir= --show-fixes --no-show-fixes --fixable= --unfixable= --extend-fixable= --ignore-noqa
ruff format, black, isort | operands=write at
  -qvhcCS -l: -t: --check --check-only --diff --color --quiet --verbose --line-length= --target-version= --exclude=
  --extend-exclude= --force-exclude --fast --safe --preview --isolated --no-cache --skip-string-normalization
  --skip-magic-trailing-comma --version --help
  ! --config= --settings-path= --sp= --formatter= --sort-order= --code= --stdin-filename= --cache-dir= --workers=
mypy | operands=inside at
  -vhV -p: -m: --package= --module= --strict --ignore-missing-imports --no-incremental --incremental --pretty
  --no-pretty --show-error-codes --hide-error-codes --show-error-context --hide-error-context --show-column-numbers
  --show-error-end --show-absolute-path --no-error-summary --no-color-output --python-version= --platform=
  --follow-imports= --no-site-packages --no-silence-site-packages --namespace-packages --explicit-package-bases
  --exclude= --exclude-gitignore --disallow-any-generics --disallow-untyped-defs --disallow-untyped-calls
  --disallow-incomplete-defs --check-untyped-defs --disallow-untyped-decorators --no-implicit-optional
  --warn-redundant-casts --warn-unused-ignores --warn-return-any --warn-unreachable --warn-unused-configs
  --strict-equality --no-implicit-reexport --disable-error-code= --enable-error-code= --local-partial-types
  --skip-version-check --error-summary --non-interactive --output=f --verbose --help --version
  ! -c: --command= --config-file= --python-executable= --cache-dir= --install-types --shadow-file --junit-xml=
  ! --any-exprs-report= --cobertura-xml-report= --html-report= --linecount-report= --linecoverage-report=
  ! --lineprecision-report= --txt-report= --xml-report= --xslt-html-report= --xslt-txt-report= --timing-stats=
  ! --line-checking-stats= --custom-typeshed-dir= --custom-typing-module= --pdb --sqlite-cache --cache-map
pyright, basedpyright | operands=inside at
  -wh --outputjson --verbose --stats --level= --warnings --pythonversion= --pythonplatform= --dependencies --watch
  --skipunannotated --version --help
  ! -p: -v: -t: --project= --pythonpath= --venvpath= --venv-path= --typeshedpath= --typeshed-path= --createstub=
  ! --writebaseline --baselinefile= --baselinemode= --gitlabcodequality= --threads? --verifytypes= --ignoreexternal
ty check, pyrefly check | operands=inside at
  -qv --quiet --verbose --error= --warn= --ignore= --exit-zero --error-on-warning --output-format= --color=
  --python-version=
pylint | operands=inside at
  -Evh -d: -e: -f:f -r: -s: -j: --errors-only --disable= --enable= --output-format=f --reports= --score= --jobs=
  --verbose --ignore= --ignore-patterns= --ignore-paths= --max-line-length= --fail-under= --fail-on= --recursive=
  --msg-template= --list-msgs --help-msg= --py-version= --exit-zero --version --help
  ! --init-hook= --load-plugins= --rcfile= --output= --extension-pkg-allow-list= --extension-pkg-whitelist=
  ! --unsafe-load-any-extension= --generate-rcfile --generate-toml-config --source-roots= --clear-cache-post-run=
flake8, pycodestyle, pyflakes, pydocstyle | operands=inside at
  -qvh -j: --quiet --verbose --select= --ignore= --extend-ignore= --extend-select= --max-line-length= --count
  --statistics --show-source --no-show-source --show-pep8 --exclude= --extend-exclude= --filename= --max-complexity=
  --max-doc-length= --format= --per-file-ignores= --exit-zero --color= --jobs= --isolated --benchmark --doctests
  --convention= --first --version --help
  ! --config= --append-config= --output-file= --tee --enable-extensions= --require-plugins= --bug-report --diff
bandit | operands=inside at
  -rlivqh -f:f -x: -t: -s: -n: -a: --recursive --level --confidence --severity-level= --confidence-level= --format=f
  --exclude= --skip= --tests= --quiet --verbose --exit-zero --version --help
vulture, radon cc, radon mi, radon raw | operands=inside at
  -sah -n: -x: --min-confidence= --sort-by-size --exclude= --ignore-names= --show-complexity --average --version
shellcheck | plain
  -axV -C? -e: -f: -i: -o: -P: -s: -S: -W: --check-sourced --color? --exclude= --format= --include= --norc --rcfile=
  --enable= --list-optional --source-path= --shell= --severity= --wiki-link-count= --external-sources --version --help
yamllint, hadolint, actionlint, checkov, tflint | operands=inside at
  -sv -f:f -d:i --strict --no-warnings --format=f --ignore= --no-color --no-fail --failure-threshold= --version --help
codespell, typos | operands=inside at
  -qd -S: -L: --skip= --ignore-words-list= --quiet-level= --count --version --help
clang-format | operands=inside at
  -n --dry-run --Werror --style=n --dump-config --version --help --ferror-limit=
  ! -i --i --style-file= --assume-filename=
clang-tidy | words equals operands=inside at
  --version --list-checks -list-checks --checks: -checks: --quiet -quiet --use-color --help
cppcheck | operands=inside at
  -qf -j: -D: -I: -U: --enable= --quiet --std= --language= --force --inconclusive --error-exitcode= --suppress=
  --inline-suppr --max-configs= --version --help
rubocop | operands=inside at
  -PlDSdV -f:f --parallel --format=f --only= --except= --lint --display-cop-names --display-style-guide --fail-level=
  --force-exclusion --color --no-color --version
  ! -a -A -r: -c: -o: -x --autocorrect --autocorrect-all --require= --config= --out= --server --plugin=
rspec | operands=inside at
  -bcv -e: -t: --example= --tag= --seed= --order= --fail-fast? --no-fail-fast --dry-run --backtrace --color
  --no-color --force-color --only-failures --next-failure --profile? --version --help
  ! -r: -I: -o: -O: -f: -P: --require= --options= --out= --format= --init --bisect? --pattern= --drb
phpunit | operands=inside at
  -v --filter= --testsuite= --group= --exclude-group= --stop-on-failure --stop-on-error --stop-on-defect --testdox
  --colors? --no-coverage --verbose --list-tests --list-suites --no-progress --fail-on-warning --version --help
  ! -c: -d: --bootstrap= --configuration= --include-path= --prepend= --extension= --log-junit= --coverage-html=
phpstan analyse, phpstan analyze, psalm | operands=inside at
  -qvn -l: --level= --error-format=f --no-progress --memory-limit= --no-ansi --ansi --quiet --version
golangci-lint run, staticcheck | operands=inside at
  -v -E: -D: --fast --timeout= --enable= --disable= --enable-only= --new-from-rev=r --verbose --max-issues-per-linter=
  --max-same-issues= --tests? --color= --version --help
  ! -c: --fix --config= --out-format= --path-prefix= --cpu-profile-path= --mem-profile-path= --trace-path=
gofmt, goimports, gofumpt | words equals operands=inside
  -l -d -s -e
  ! -w -r: -cpuprofile: -local: -srcdir:
rustfmt --check | operands=inside
  -lqv --edition=n --color= --quiet --verbose
swiftlint lint, ktlint | operands=inside at check=audit
  --quiet --strict --relative --color

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
docker-compose version, terraform version, helm version, uv --version, pip --version, poetry --version,
deno --version, bun --version, swift --version, ghc --version, mvn --version, gradle --version, tar --version,
openssl version, psql --version, mysql --version, sqlite3 --version, ffmpeg -version,
ssh -V, rsync --version, git --version, npm --version, npm -v, pnpm --version, cargo --version, cargo -V,
docker --version, docker -v, gh --version, dotnet --version, dotnet --info, dotnet --list-sdks | operands=none

pandoc | operands=inside check=pandoc
  -s -f:n -t:x --from=n --to=x --read=n --write=x --standalone --toc --toc-depth= --wrap= --columns=
  --markdown-headings= --number-sections --list-input-formats --list-output-formats --list-extensions? --version --help
  ! -o: -F: -L: -d: -H: -B: -A: -c: -M: -V: --output= --filter= --lua-filter= --defaults= --template= --pdf-engine=
  ! --include-in-header= --extract-media= --data-dir= --metadata-file= --resource-path= --log= --citeproc
"""
