source .asp/env
# The state of a platform that was stopped.
export ASP_STATE_DIR=$PWD/stopped
asp db migrate >/dev/null
mkdir -p "$ASP_STATE_DIR/artifacts" "$ASP_STATE_DIR/packages"
touch "$ASP_STATE_DIR/seal-key"
echo '{"message":"call failed","level":"WARN","upstream":"crm.internal:443","reason":"upstream_unavailable","org":"acme"}' >gateway.log

# A PostgreSQL with the platform's database, and a backup of it. It refuses to run as root.
export PATH=$ASP_POSTGRES_DIR:$PATH PGUSER=postgres
host=$(mktemp -d)
owner=()
if [[ $EUID == 0 ]]; then
  chown postgres: "$host"
  owner=(setpriv --reuid postgres --regid postgres --clear-groups)
fi
(cd / && "${owner[@]}" initdb --auth=trust --no-sync --no-locale --encoding=UTF8 --username postgres -D "$host/data" >/dev/null)
(
  trap 'rm -rf "$host"' EXIT
  cd /
  "${owner[@]}" postgres -c listen_addresses= -c fsync=off -c unix_socket_directories="$host" -D "$host/data"
) >postgres.log 2>&1 &
until psql -h "$host" -d postgres -c 'SELECT 1' >/dev/null 2>&1; do sleep 0.1; done
createuser -h "$host" asp
createdb -h "$host" -O asp asp
database=postgres://asp@${host//\//%2F}/asp
ASP_DATABASE_URL=$database asp db migrate >/dev/null
pg_dump -h "$host" -d asp -f backup.sql
