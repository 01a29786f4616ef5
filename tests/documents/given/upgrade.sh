source .asp/env
printf 'ASP_PUBLIC_URL=%s\n' "$ASP_EDGE_URL" >gateway.env
cp gateway.env control.env
touch runtime.env
