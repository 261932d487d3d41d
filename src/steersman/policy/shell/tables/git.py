"""Git, by subcommand."""

TABLE = """
@diff
  -psuzWRDabw -U? -B? -M? -C? -X? -l: -S: -G: -O: -I: --patch --no-patch --unified? --output-indicator-new=
  --output-indicator-old= --output-indicator-context= --raw --patch-with-raw --indent-heuristic --no-indent-heuristic
  --minimal --patience --histogram --anchored= --diff-algorithm= --stat? --stat-width= --stat-name-width=
  --stat-count= --stat-graph-width= --compact-summary --numstat --shortstat --dirstat? --cumulative
  --dirstat-by-file? --summary --patch-with-stat --name-only --name-status --submodule? --color? --no-color
  --color-moved? --no-color-moved --color-moved-ws= --no-color-moved-ws --word-diff? --word-diff-regex=
  --color-words? --no-renames --rename-empty --no-rename-empty --check --ws-error-highlight= --full-index --binary
  --abbrev? --no-abbrev --break-rewrites? --find-renames? --find-copies? --find-copies-harder --irreversible-delete
  --diff-filter= --find-object= --pickaxe-all --pickaxe-regex --skip-to= --rotate-to= --relative? --no-relative
  --text --ignore-cr-at-eol --ignore-space-at-eol --ignore-space-change --ignore-all-space --ignore-blank-lines
  --ignore-matching-lines= --inter-hunk-context= --function-context --no-function-context --exit-code --quiet
  --no-ext-diff --no-textconv --ignore-submodules? --src-prefix= --dst-prefix= --no-prefix --default-prefix
  --line-prefix= --ita-invisible-in-index --merge-base --cc --cached --staged --base --ours --theirs
  ! --output= --ext-diff --textconv

@log
  -# -igEFPcmtr -n: -L: --max-count= --skip= --since= --after= --since-as-filter= --until= --before= --author=
  --committer= --grep-reflog= --grep= --all-match --invert-grep --regexp-ignore-case --basic-regexp
  --extended-regexp --fixed-strings --perl-regexp --remove-empty --merges --no-merges --min-parents= --max-parents=
  --no-min-parents --no-max-parents --first-parent --exclude-first-parent-only --not --all --branches? --tags?
  --remotes? --glob= --exclude= --exclude-hidden= --reflog --single-worktree --ignore-missing --bisect
  --cherry-mark --cherry-pick --left-only --right-only --cherry --walk-reflogs --merge --boundary
  --simplify-by-decoration --show-pulls --full-history --dense --sparse --simplify-merges --ancestry-path?
  --date-order --author-date-order --topo-order --reverse --no-walk? --do-walk --pretty? --format= --abbrev-commit
  --no-abbrev-commit --oneline --encoding= --expand-tabs? --no-expand-tabs --notes? --no-notes --show-notes?
  --show-notes-by-default --standard-notes --no-standard-notes --relative-date --date= --parents --children
  --left-right --graph --no-graph --show-linear-break? --decorate? --no-decorate --decorate-refs=
  --decorate-refs-exclude= --clear-decorations --source --mailmap --no-mailmap --use-mailmap --no-use-mailmap
  --full-diff --log-size --follow --no-diff-merges --dd --root --combined-all-paths
  --end-of-options
  ! --show-signature --no-show-signature --alternate-refs --stdin --remerge-diff --diff-merges=

@list
  --contains= --no-contains= --merged= --no-merged= --points-at= --sort= --format= --color? --no-color --column?
  --no-column --ignore-case -i --list -l --omit-empty

git log, git show, git whatchanged, git reflog show, git stash list, git stash show | check=gitformat
  @diff @log -v -u --include-untracked --only-untracked --no-include-untracked
git reflog | operands=none check=gitformat
  @diff @log
  ! --dry-run --expire= --expire-unreachable= --rewrite --stale-fix --updateref --verbose
git diff | deep check=gitformat
  @diff -# -c --no-index --cached --staged
git diff-tree, git diff-index, git diff-files, git rev-list, git cherry, git range-diff | check=gitformat
  @diff @log -vq --always --no-commit-id --count --objects --header --timestamp --max-age= --min-age= --disk-usage?
  --no-object-names --object-names --no-commit-header --commit-header --left-right --creation-factor= --no-dual-color
git shortlog | check=gitformat
  @log -n -s -e -w? --numbered --summary --email --group= --format=
git status
  -sbvz -u? --short --branch --show-stash --porcelain? --long --verbose --untracked-files? --ignore-submodules?
  --ignored? --column? --no-column --ahead-behind --no-ahead-behind --renames --no-renames --find-renames?
git branch | operands=write check=gitformat
  -avrqt @list --all --verbose --remotes --show-current --abbrev= --no-abbrev --track? --no-track --quiet
  --create-reflog --no-create-reflog
  ! -d -D -m -M -c -C -f -u: --delete --move --copy --force --set-upstream --set-upstream-to= --unset-upstream
  ! --edit-description --recurse-submodules
git tag | operands=write check=tag
  -a -n? -m:: -F:i @list --annotate --message== --file=i --cleanup= --create-reflog --no-create-reflog --no-sign
  ! -s -u: -v -d -f -e --sign --local-user= --verify --delete --force --edit --trailer=
git branch --list, git tag --list, git tag -l | check=gitformat
  @list -n?
git for-each-ref | check=gitformat
  @list --count= --shell --perl --python --tcl --stdin --exclude= --include-root-refs
git blame, git annotate
  -bcefhlnpstw -L:: -S: -M? -C? --root --show-stats --reverse= --first-parent --porcelain --line-porcelain
  --incremental --encoding= --contents= --date= --ignore-rev= --ignore-revs-file= --color-lines --color-by-age
  --abbrev= --show-name --show-number --show-email --score-debug --progress --no-progress
git grep
  -# -acEFGHhIiLlnoPpqrvWwz -A: -B: -C: -e:: -f: -m: --after-context= --before-context= --context= --all-match --and
  --or --not --basic-regexp --extended-regexp --fixed-strings --perl-regexp --break --heading --cached --color?
  --no-color --column --count --exclude-standard --no-exclude-standard --files-with-matches --files-without-match
  --name-only --full-name --function-context --show-function --ignore-case --invert-match --line-number --max-count=
  --max-depth= --no-recursive --recursive --no-textconv --null --only-matching --quiet --text --threads= --untracked
  --word-regexp
  ! -O? --open-files-in-pager? --textconv --ext-grep --no-ext-grep --no-index --recurse-submodules
git ls-files | check=gitformat
  -cdfikmostuvz -x: -X: --cached --deleted --modified --others --ignored --stage --unmerged --killed --directory
  --no-empty-directory --eol --exclude= --exclude-from= --exclude-per-directory= --exclude-standard --error-unmatch
  --with-tree= --full-name --abbrev? --debug --deduplicate --sparse --format= --resolve-undo
  ! --recurse-submodules
git ls-tree | check=gitformat
  -dlrtz --long --name-only --name-status --object-only --abbrev? --full-name --full-tree --format=
git rev-parse
  -q --abbrev-ref? --absolute-git-dir --after= --all --before= --branches? --default= --disambiguate= --exclude=
  --exclude-hidden= --flags --git-common-dir --git-dir --git-path= --glob= --is-bare-repository --is-inside-git-dir
  --is-inside-work-tree --is-shallow-repository --local-env-vars --no-flags --no-revs --not --path-format= --prefix=
  --quiet --remotes? --resolve-git-dir= --revs-only --shared-index-path --short? --show-cdup --show-object-format?
  --show-prefix --show-superproject-working-tree --show-toplevel --since= --sq --symbolic --symbolic-full-name
  --tags? --until= --verify --end-of-options --show-ref-format
  ! --parseopt --sq-quote --keep-dashdash --stop-at-non-option --stuck-long
git symbolic-ref --short, git symbolic-ref -q | operands=1
  -q --short --quiet --recurse --no-recurse
git describe, git name-rev, git merge-base, git show-ref, git show-branch
  -adqrsg --all --tags --contains --abbrev= --candidates= --exact-match --debug --long --match= --exclude= --always
  --first-parent --dirty? --broken? --name-only --refs= --undefined --no-undefined --fork-point --octopus
  --independent --is-ancestor --head --heads --branches --dereference --hash? --exclude-existing? --verify --quiet
  --exists --current
  --no-name --sha1-name --topics --list --more= --sparse --topo-order --date-order --remotes --color? --no-color
git cat-file
  -epstzZ --batch? --batch-check? --batch-all-objects --buffer --follow-symlinks --unordered --path=
  --allow-unknown-type --mailmap --no-mailmap --use-mailmap --no-use-mailmap
  ! --textconv --filters --filter= --batch-command?
git count-objects, git check-ignore, git check-attr, git check-ref-format, git version, git var -l
  -vHnqza --verbose --human-readable --no-index --non-matching --quiet --stdin --all --cached --source= --branch
  --build-options
git remote | operands=none
  -v --verbose
git remote get-url, git remote show | sends check=remotes
  -n --all --push
git ls-remote | sends check=remote
  -bhtq --heads --branches --tags --refs --quiet --exit-code --get-url --sort= --symref
  ! -o: --upload-pack= --exec= --server-option=
git fetch | operands=write check=remote
  -46aptqvkn -j: --all --append --atomic --deepen= --depth= --dry-run --write-fetch-head --no-write-fetch-head
  --ipv4 --ipv6 --jobs= --keep --auto-maintenance --no-auto-maintenance --auto-gc --no-auto-gc --progress
  --no-progress --prune --quiet --refetch --porcelain --shallow-exclude= --shallow-since= --tags
  --no-tags --unshallow --verbose --no-recurse-submodules --show-forced-updates --no-show-forced-updates
  --negotiation-tip= --write-commit-graph --no-write-commit-graph
  ! -f -u -o: -m -P --prune-tags --force --update-head-ok --refmap= --recurse-submodules? --recurse-submodules-default=
  ! --submodule-prefix= --server-option= --upload-pack= --multiple --stdin --filter= --prefetch --negotiate-only
  ! --set-upstream --update-shallow
git pull | operands=write check=remote
  -46aptqvkn -r -j: -X:m --all --append --depth= --dry-run --ipv4 --ipv6 --jobs= --progress --no-progress --prune
  --quiet --tags --no-tags --verbose --rebase --no-rebase --ff --no-ff --ff-only --commit --no-commit --stat
  --no-stat --summary --no-summary --squash --no-squash --log? --no-log --autostash --no-autostash --no-edit
  --signoff --no-signoff --no-gpg-sign --no-verify-signatures --strategy-option=m --no-recurse-submodules
  --cleanup= --keep --compact-summary
  ! -e -f -o: -s: -S? --edit --force --gpg-sign? --strategy= --upload-pack= --verify-signatures --no-verify --verify
  ! --allow-unrelated-histories --recurse-submodules? --refmap= --server-option= --set-upstream --unshallow
  ! --update-shallow --atomic --deepen= --shallow-exclude= --shallow-since= --negotiate-only --negotiation-tip=
  ! --prefetch --show-forced-updates --no-show-forced-updates --porcelain
git push | operands=write check=push
  -46nquv --dry-run --quiet --verbose --set-upstream --porcelain --progress --no-progress --tags --follow-tags
  --no-follow-tags --atomic --no-atomic --ipv4 --ipv6 --thin --no-thin --verify --no-signed --no-recurse-submodules
  --no-force-with-lease --no-force-if-includes
  ! -d -f -o: --all --branches --delete --exec= --force --force-if-includes --force-with-lease? --mirror --no-verify
  ! --prune --push-option= --receive-pack= --recurse-submodules= --repo= --signed?
git add, git stage | operands=write
  -ANnuv --all --no-all --chmod= --dry-run --ignore-errors --ignore-missing --ignore-removal --no-ignore-removal
  --intent-to-add --no-warn-embedded-repo --refresh --renormalize --update --verbose --sparse
  ! --pathspec-from-file= --pathspec-file-nul
  ! -e -f -i -p --edit --force --interactive --patch -U: --unified= --inter-hunk-context= --auto-advance
git commit | operands=write check=commit
  -aiopqsvz -m:: -F:i -C: -t:i -u? --all --allow-empty --allow-empty-message --amend --author= --branch --cleanup=
  --date= --dry-run --file=i --fixup= --include --long --message== --no-edit --no-gpg-sign --no-post-rewrite
  --no-signoff --no-status --null --only --porcelain --quiet
  --reset-author --reuse-message= --short --signoff --squash= --status --template=i --untracked-files? --verbose
  --verify
  ! -S? -c: -e -n -p --edit --gpg-sign? --interactive --no-verify --patch --reedit-message= --trailer=
  ! -U: --unified= --inter-hunk-context= --pathspec-from-file= --pathspec-file-nul
git checkout, git switch, git restore | operands=write
  -dlmqtSW -b: -c: -s: --conflict= --create= --detach --guess --no-guess --ignore-skip-worktree-bits --merge --track?
  --no-track --no-overlay --overlay --no-progress --progress --no-recurse-submodules --ours --theirs --quiet
  --source= --staged --worktree --ignore-unmerged --no-overwrite-ignore
  ! --pathspec-from-file= --pathspec-file-nul
  ! -f -p -B: -C: --force --patch --force-create= --discard-changes --orphan= --ignore-other-worktrees
  ! --recurse-submodules --overwrite-ignore --unified= -U: --inter-hunk-context= --auto-advance
git reset | operands=write
  -qN --soft --mixed --quiet --no-refresh --refresh --intent-to-add
  ! --pathspec-from-file= --pathspec-file-nul
  ! -p --hard --merge --keep --patch --recurse-submodules --no-recurse-submodules -U: --unified=
git rm | operands=write
  -nqkv --cached --dry-run --ignore-unmatch --quiet --sparse --verbose
  ! -f -r --force --pathspec-from-file= --pathspec-file-nul
git mv | operands=write
  -nkv --dry-run --sparse --verbose
  ! -f --force
git clean | check=clean
  -dnqxX -e: --dry-run --exclude= --quiet
  ! -f -i --force --interactive
git stash, git stash push | changes operands=none
  -kuqS -m:: --include-untracked --no-include-untracked --index --keep-index --no-keep-index --quiet --staged
  --message==
  ! -a -p --all --patch --only-untracked --pathspec-from-file= --pathspec-file-nul -U: --unified=
git stash pop, git stash apply | operands=write
  -q --quiet --index
git merge | operands=write
  -nqv -m:: -F:i -X:m --abort --quit --autostash --no-autostash --cleanup= --commit --no-commit --ff --no-ff
  --ff-only --file=i --into-name= --log? --no-log --no-edit --no-gpg-sign --no-progress --progress
  --no-rerere-autoupdate --rerere-autoupdate --no-signoff --signoff --no-squash --squash --stat --no-stat --summary
  --no-summary --no-verify-signatures --no-overwrite-ignore --overwrite-ignore --quiet --strategy-option=m --verbose
  --compact-summary --verify
  ! -e -s: -S? --continue --edit --strategy= --gpg-sign? --verify-signatures --no-verify --gui -g
  ! --allow-unrelated-histories
git cherry-pick, git revert | operands=write
  -nxsr -m: -X:m --abort --quit --skip --allow-empty --allow-empty-message --cleanup= --ff
  --keep-redundant-commits --mainline= --no-commit --no-edit --no-gpg-sign --no-rerere-autoupdate
  --rerere-autoupdate --signoff --strategy-option=m --reference --empty=
  ! -e -S? --continue --edit --gpg-sign? --strategy=
git apply | check=apply
  -RNqvz -p: -C: --check --stat --numstat --summary --index --cached --intent-to-add --reverse --whitespace=
  --recount --include= --exclude= --ignore-space-change --ignore-whitespace --inaccurate-eof --no-add --apply
  --binary --verbose --quiet --allow-empty --unidiff-zero --ours --theirs --union
  ! -3 --3way --reject --unsafe-paths --directory= --build-fake-ancestor= --allow-binary-replacement
git config --get, git config --get-all, git config --get-regexp, git config --list, git config -l, git config get,
git config list
  -z --global --local --system --worktree --null --name-only --show-origin --show-scope --type= --default= --all
  --regexp --value= --fixed-value --includes --no-includes --bool --int --path
git worktree list, git notes show, git notes list, git bisect log
  -vz --verbose --porcelain
"""
