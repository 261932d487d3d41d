"""Containers, clusters, code hosts and cloud services: the subcommands that look."""

TABLE = """
@docker
  --help
  ! -l: -v --version -c: -D -H: --config= --context= --debug --host= --log-level= --tls? --tlscacert= --tlscert=
  ! --tlskey= --tlsverify?
docker ps, docker container ls, docker container list, podman ps | operands=none
  @docker -alqs -f: -n: --all --filter= --format= --last= --latest --no-trunc --quiet --size
  ! --sort= --watch= --sync --external --ns --namespace --pod -w: -p
docker images, docker image ls, podman images | exact operands=names
  @docker -aq -f: --all --digests --filter= --format= --no-trunc --quiet --tree
docker logs, docker container logs, podman logs, docker service logs | exact operands=names
  @docker -ft -n: --details --follow --since= --tail= --timestamps --until= --no-color --no-log-prefix --index=
docker compose ps | exact operands=names
  @docker -aq --all --filter= --format= --no-trunc --orphans? --quiet --services --status=
docker compose logs | exact operands=names
  @docker -ft -n: --follow --index= --no-color --no-log-prefix --since= --tail= --timestamps --until=
docker inspect, docker image inspect, docker container inspect, docker network inspect, docker volume inspect,
docker stats, docker version, docker info, docker port, docker diff, docker history, docker network ls,
docker volume ls, docker system df, docker compose ls, docker compose version, podman inspect, podman version,
podman info | exact operands=names
  @docker -asq --size --all --no-stream --no-trunc --quiet --short
docker top | exact operands=1
  @docker

@kubectl
  -n: --namespace= --request-timeout= --match-server-version? --warnings-as-errors?
  --disable-compression? --log-flush-frequency= -h --help
  ! -v: --v= --vmodule=
  ! -s: --as= --as-group= --as-uid= --as-user-extra= --cache-dir= --certificate-authority= --client-certificate=
  ! --client-key= --cluster= --context= --insecure-skip-tls-verify? --kubeconfig= --kuberc= --password= --profile=
  ! --profile-output= --server= --tls-server-name= --token= --user= --username= --storage-driver-buffer-duration=
kubectl get | check=kubectl
  @kubectl -Aw -L: -l: -o: --all-namespaces? --allow-missing-template-keys? --chunk-size= --field-selector=
  --ignore-not-found? --label-columns= --no-headers? --output= --output-watch-events? --selector= --server-print?
  --show-kind? --show-labels? --show-managed-fields? --sort-by= --subresource= --template= --watch? --watch-only?
  ! -f: -k: -R --filename= --kustomize= --raw= --recursive?
kubectl describe | exact
  @kubectl -A -l: --all-namespaces? --chunk-size= --selector= --show-events?
  ! -f: -k: -R --filename= --kustomize= --recursive?
kubectl logs | exact
  @kubectl -fp -c: -l: --all-containers? --all-pods? --container= --follow? --ignore-errors? --limit-bytes=
  --max-log-requests= --pod-running-timeout= --prefix? --previous? --selector= --since= --since-time= --tail==
  --timestamps?
  ! --insecure-skip-tls-verify-backend?
kubectl top pods, kubectl top pod, kubectl top nodes, kubectl top node, kubectl version, kubectl explain,
kubectl api-resources, kubectl api-versions, kubectl cluster-info, kubectl events, kubectl rollout status,
kubectl rollout history, kubectl auth can-i, kubectl config current-context, kubectl config get-contexts | exact
  @kubectl -A -o:n --all-namespaces --containers --no-headers --client --output=n
  ! --output-directory= -f: -k: --filename= --kustomize=

@gh
  -L:d -R:o --help --json= --limit=d --repo=o
  ! -q: -t: -w --jq= --template= --web
gh pr view, gh pr list, gh pr diff, gh pr checks, gh pr status, gh issue view, gh issue list,
gh issue status | exact
  @gh -cd -a: -A: -B: -H: -l: -m: -s: -S: -i: -e: --comments --draft --app= --assignee= --author= --base= --head=
  --label= --milestone= --mention= --state= --search= --color= --name-only --patch --exclude= --required --watch
  --interval= --fail-fast --type= --conflict-status
gh run list | exact operands=none
  @gh -a -b: -c: -e: -s: -u: -w: --all --branch= --commit= --created= --event= --status= --user= --workflow=
gh run view, gh run watch, gh workflow list, gh workflow view | exact operands=names
  @gh -avy -i: -j: -r: --all --attempt= --exit-status --job= --log --log-failed --verbose --ref= --yaml --interval=
  --compact
gh release list, gh repo view, gh label list, gh status | exact operands=none
  @gh
gh auth status | exact operands=none
  --help
  ! -t --show-token --hostname= --json=

aws s3 ls, aws sts get-caller-identity, aws ec2 describe-instances, aws logs describe-log-groups,
aws ecs list-clusters, aws cloudformation list-stacks | exact operands=none
  --region=n --output=n --no-paginate --no-cli-pager
  ! --endpoint-url= --profile= --no-verify-ssl --ca-bundle= --cli-input-json= --cli-input-yaml= --debug
terraform fmt | exact changes words operands=inside
  -check -diff -recursive -no-color
"""
