# The settings of a gateway.
printf '%s\n' ASP_PUBLIC_URL=https://mcp.example.com ASP_SEAL_KEY=0123456789abcdef0123456789abcdef \
  ASP_XDS_URL=http://127.0.0.1:18000 >gateway.env
