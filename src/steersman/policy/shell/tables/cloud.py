"""Containers, clusters, code hosts and cloud services: the subcommands that look."""

TABLE = """
@docker
  --help
  ! -l: -v --version -c: -D -H: --config= --context= --debug --host= --log-level= --tls? --tlscacert= --tlscert=
  ! --tlskey= --tlsverify?
docker ps, docker container ls, docker container list, podman ps
  @docker -alqs -f: -n: --all --filter= --format= --last= --latest --no-trunc --quiet --size
  ! --sort= --watch= --sync --external --ns --namespace --pod -w: -p
docker images, docker image ls, podman images
  @docker -aq -f: --all --digests --filter= --format= --no-trunc --quiet --tree
docker logs, docker container logs, podman logs, docker service logs
  @docker -ft -n: --details --follow --since= --tail= --timestamps --until= --no-color --no-log-prefix --index=
docker compose ps
  @docker -aq --all --filter= --format= --no-trunc --orphans? --quiet --services --status=
docker compose logs
  @docker -ft -n: --follow --index= --no-color --no-log-prefix --since= --tail= --timestamps --until=
docker compose ls, docker compose version
  @docker -aq --all --filter= --format= --quiet --short
docker inspect, docker image inspect, docker container inspect, docker network inspect, docker volume inspect,
docker stats, docker version, docker info, docker port, docker diff, docker history, docker events,
docker search, docker network ls, docker volume ls, docker system df,
docker context ls, docker buildx ls, docker manifest inspect, podman inspect, podman version, podman info, podman stats
  @docker -asqv -f: --format= --size --type= --all --no-stream --no-trunc --human? --quiet --filter= --since= --until=
  --limit= --verbose
docker top | operands=1
  @docker
docker stop, docker pull, docker rm, docker restart
  @docker -qv -t: --time= --timeout= --quiet --volumes
  ! -f -a -i -l --force --link --platform= --all-tags --disable-content-trust? --attach --interactive --checkpoint=

@kubectl
  -n: -v: --namespace= --request-timeout= --v= --vmodule= --match-server-version? --warnings-as-errors?
  --disable-compression? --log-flush-frequency= -h --help
  ! -s: --as= --as-group= --as-uid= --as-user-extra= --cache-dir= --certificate-authority= --client-certificate=
  ! --client-key= --cluster= --context= --insecure-skip-tls-verify? --kubeconfig= --kuberc= --password= --profile=
  ! --profile-output= --server= --tls-server-name= --token= --user= --username= --storage-driver-buffer-duration=
kubectl get
  @kubectl -Aw -L: -l: -o: --all-namespaces? --allow-missing-template-keys? --chunk-size= --field-selector=
  --ignore-not-found? --label-columns= --no-headers? --output= --output-watch-events? --selector= --server-print?
  --show-kind? --show-labels? --show-managed-fields? --sort-by= --subresource= --template= --watch? --watch-only?
  ! -f: -k: -R --filename= --kustomize= --raw= --recursive?
kubectl describe
  @kubectl -A -l: --all-namespaces? --chunk-size= --selector= --show-events?
  ! -f: -k: -R --filename= --kustomize= --recursive?
kubectl logs
  @kubectl -fp -c: -l: --all-containers? --all-pods? --container= --follow? --ignore-errors? --limit-bytes=
  --max-log-requests= --pod-running-timeout= --prefix? --previous? --selector= --since= --since-time= --tail==
  --timestamps?
  ! --insecure-skip-tls-verify-backend?
kubectl top pods, kubectl top pod, kubectl top nodes, kubectl top node, kubectl version, kubectl explain,
kubectl api-resources, kubectl api-versions, kubectl cluster-info, kubectl events, kubectl rollout status,
kubectl rollout history, kubectl auth can-i, kubectl auth whoami, kubectl config current-context,
kubectl config get-contexts, kubectl config view, kubectl wait
  @kubectl -Aqw -l: -o: --all-namespaces? --selector= --sort-by= --containers? --no-headers? --client? --output=
  --recursive? --api-group= --api-version= --namespaced? --verbs= --watch? --timeout= --revision= --types= --for=
  --list? --quiet? --minify? --all? --show-capacity? --use-protocol-buffers?
  ! --raw? --flatten? --output-directory= -f: -k: --filename= --kustomize=

@gh
  -q: -t: -L: -R:o --help --jq= --template= --json= --limit= --repo=o
  ! -w --web
gh pr view, gh pr list, gh pr diff, gh pr checks, gh pr status, gh issue view, gh issue list,
gh issue status | check=codehost
  @gh -cd -a: -A: -B: -H: -l: -m: -s: -S: -i: -e: --comments --draft --app= --assignee= --author= --base= --head=
  --label= --milestone= --mention= --state= --search= --color= --name-only --patch --exclude= --required --watch
  --interval= --fail-fast --type= --conflict-status
gh run list
  @gh -a -b: -c: -e: -s: -u: -w: --all --branch= --commit= --created= --event= --status= --user= --workflow=
gh run view, gh run watch, gh workflow list, gh workflow view
  @gh -avy -i: -j: -r: --all --attempt= --exit-status --job= --log --log-failed --verbose --ref= --yaml --interval=
  --compact
@ghlist
  @gh -b: -o: -s: -l: --branch= --order= --sort= --language= --owner= --state= --label= --author= --visibility= --topic=
  --exclude-drafts --exclude-pre-releases --archived? --fork --source --no-archived --match= --filename= --extension=
  ! -t --show-token --hostname=
gh release view, gh release list, gh repo view, gh repo list, gh label list, gh cache list, gh auth status,
gh status | check=codehost
  @ghlist
gh search issues, gh search prs, gh search repos, gh search code, gh search commits
  @ghlist
gh pr create, gh pr comment, gh issue create, gh issue comment | check=ownrepository
  -df -l: -t:: -b:: -a: -B:r -H:r -m: -r: --title== --body== --draft --fill --fill-first --fill-verbose --assignee=
  --base=r --head=r --label= --milestone= --reviewer= --dry-run
  ! -w -e -F: -R: -T: --web --editor --body-file= --repo= --template= --recover= --edit-last --delete-last --yes
glab mr view, glab mr list, glab issue view, glab issue list, glab ci list, glab ci status | check=ownrepository
  -c -P: -p: -F: -a: -l: --comments --all --closed --merged --label= --author= --assignee= --page= --per-page= --output=

aws s3 ls, aws sts get-caller-identity, aws ec2 describe-instances, aws ec2 describe-vpcs, aws ec2 describe-subnets,
aws ec2 describe-security-groups, aws ec2 describe-images, aws ec2 describe-volumes, aws logs tail,
aws logs describe-log-groups, aws logs filter-log-events, aws lambda list-functions, aws ecs list-clusters,
aws ecs list-services, aws ecs list-tasks, aws ecs describe-services, aws ecs describe-tasks, aws eks list-clusters,
aws eks describe-cluster, aws iam list-roles, aws iam list-users, aws iam get-role, aws s3api list-buckets,
aws s3api list-objects-v2, aws s3api head-object, aws rds describe-db-instances, aws cloudformation describe-stacks,
aws cloudformation list-stacks, aws dynamodb list-tables, aws dynamodb describe-table, aws sqs list-queues,
aws sns list-topics, aws ecr describe-repositories, aws ecr list-images, aws cloudwatch list-metrics,
aws route53 list-hosted-zones, aws configure list | check=aws
  --region=n --output= --query= --no-paginate --max-items= --page-size= --no-cli-pager --color= --recursive
  --human-readable --summarize --since= --follow --format= --filters= --filter-pattern= --instance-ids= --cluster=
  --services= --service-name= --tasks= --name= --stack-name= --table-name= --bucket= --prefix= --key= --log-group-name=
  --start-time= --end-time= --limit= --role-name= --repository-name= --db-instance-identifier= --owners=
  ! --endpoint-url= --profile= --no-verify-ssl --ca-bundle= --cli-input-json= --cli-input-yaml= --debug
  ! --no-sign-request
gcloud config list, gcloud projects list, gcloud auth list, gcloud info, gcloud version, gcloud compute instances list,
gcloud compute instances describe, gcloud compute zones list, gcloud container clusters list, gcloud run services list,
gcloud run services describe, gcloud functions list, gcloud logging read, gcloud sql instances list,
gcloud services list, gcloud storage ls, gcloud iam service-accounts list, gsutil ls | check=aws
  -qlhr --format= --filter= --limit= --project= --region= --zone= --sort-by= --uri --quiet --page-size= --freshness=
  --order= --zones= --enabled --available
  ! --flags-file= --account= --impersonate-service-account= --configuration= --log-http --access-token-file=
az account show, az account list, az group list, az group show, az vm list, az vm show, az webapp list, az aks list,
az aks show, az acr list, az storage account list, az functionapp list, az version | check=aws
  -o: -g: -n: -d --output= --query= --resource-group= --name= --show-details --all --only-show-errors
  ! --debug --subscription= --verbose
terraform fmt, terraform output, terraform state list, terraform workspace list,
terraform workspace show | words equals operands=inside
  -check -diff -list? -write? -recursive -json -raw -no-color -state:i -id:
terraform providers | words operands=none
helm list, helm ls, helm status, helm get values, helm get manifest, helm get notes, helm history, helm search repo,
helm repo list, helm show values, helm show chart, helm env | check=ownrepository
  -aAqdr -n: -o: -l: -f: -m: --all --all-namespaces --namespace= --output= --selector= --filter= --max= --short
  --revision= --version= --deployed --failed --pending --time-format= --versions --devel
  ! --kubeconfig= --kube-context= --kube-apiserver= --kube-token= --kube-as-user= --post-renderer= --repo= --ca-file=
flyctl status, fly status, flyctl logs, fly logs, heroku logs, heroku ps, heroku apps, vercel ls, vercel logs,
netlify status, wrangler tail, doctl compute droplet list, supabase status
  -n:s -a:s --app=n --num= --tail --json --json-output
pg_isready | operands=none
  -q -d:n -h:r -p:d -t:d -U:n --quiet --timeout=d --version --help
redis-cli ping | operands=none
"""
