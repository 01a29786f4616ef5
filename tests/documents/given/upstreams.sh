# An MCP server over HTTP, a document of an HTTP API, an agent, and a client's file.
"$ASP_PYTHON_BIN" tests/documents/given/tickets.py >tickets.json 2>tickets.log &
until [[ -s tickets.json ]]; do sleep 0.1; done
source .asp/env
export TICKETS_URL="http://127.0.0.1:$(python3 -c 'import json; print(json.load(open("tickets.json"))["port"])')/mcp"
export AGENT_URL="$ASP_EDGE_URL/a2a-conformance"
cp tests/documents/given/shop.json .
echo 'get_order_orders__id__get: order' >names.yaml
mkdir -p ~/.cursor
echo '{"mcpServers": {"github": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything@2026.8.31"]}}}' >~/.cursor/mcp.json
