//! 500 tools of 20 servers (`tests/catalog/tools.tsv`), one of which is down.

use std::time::{Duration, Instant};

use asp_proto::snapshot::{GatewaySnapshot, ProxyMcp, Runtime, Upstream, runtime::Mode};
use asp_registry::{Inputs, Source, assemble, check};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{call, listed, names, wrapped};
use crate::support::{Fixture, Modern, inputs, token};

const DOWN: &str = "weather";
const HEAD: &str =
    "version: 1.0.0\nowner: t@example.com\ntags: [test]\nsecurity: {riskClass: low}\nmutation: read_only\n";
/// Bytes of JSON per token, as for `search_tools`.
const BYTES_A_TOKEN: usize = 4;

/// Server, name, description and arguments of each tool.
fn tools() -> impl Iterator<Item = [&'static str; 4]> {
    let rows = include_str!("../../../../../tests/catalog/tools.tsv").lines();
    rows.filter(|row| !row.starts_with('#')).map(|row| {
        let cells: Vec<&str> = row.split('\t').collect();
        cells.try_into().unwrap()
    })
}

fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    let mut servers: Vec<(&str, Vec<String>)> = Vec::new();
    for [server, name, description, arguments] in tools() {
        let property = |argument: &str| {
            let description = format!("The {} of the request.", argument.replace('_', " "));
            (argument.to_owned(), json!({"type": "string", "description": description}))
        };
        let properties: Value = arguments.split(", ").map(property).collect();
        let schema = json!({"type": "object", "properties": properties});
        let text = format!(
            "id: {name}\nname: {name}\ntype: tool\n{HEAD}summary: {}\nprimitiveSchema:\n  input_schema: {schema}\n\
             runtime: {{mode: builtin, entrypoint: echo}}\n",
            json!(description)
        );
        sources.push(Source { path: format!("{server}/{name}.yaml"), text });
        if servers.last().is_none_or(|(last, _)| *last != server) {
            servers.push((server, Vec::new()));
        }
        servers.last_mut().unwrap().1.push(format!("{{ref: {server}/{name}}}"));
    }
    for (server, references) in servers {
        let text = format!(
            "apiVersion: asp/v1\nname: {server}\ntitle: {server}\ndescription: For tests.\nversion: 1.0.0\nprotocols: [mcp]\n\
             sessions: both\ndefaultExposure: allow\nauth: {{schemes: [jwt], issuers: [dev]}}\nprimitives: [{}]\n",
            references.join(", ")
        );
        sources.push(Source { path: format!("{server}/server.yaml"), text });
    }
    sources
}

/// The catalogue; every tool of [`DOWN`] is one of an upstream server that nobody serves.
async fn catalog() -> Fixture {
    let report = check(&sources());
    assert!(report.faults.is_empty(), "{:#?}", report.faults);
    let servers = report.catalog.unwrap().servers;
    let mut snapshot = assemble(Inputs { servers, all_servers: true, ..inputs() });
    take_down(&mut snapshot).await;
    Fixture::of(snapshot)
}

async fn take_down(snapshot: &mut GatewaySnapshot) {
    // A port nobody listens on: bound, learned and given back.
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let server = snapshot.servers.iter().find(|server| server.name == DOWN).unwrap();
    let ids: Vec<String> = server.listings.iter().map(|listing| listing.id.clone()).collect();
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| ids.contains(&primitive.id)) {
        let url = "http://service.internal/mcp".into();
        let tool = primitive.id.clone();
        let target = ProxyMcp { url, tool, ..ProxyMcp::default() };
        primitive.runtime = Some(Runtime { mode: Some(Mode::ProxyMcp(target)) });
    }
    snapshot.upstreams.push(Upstream {
        name: "service.internal".into(),
        url: format!("http://{dead}"),
        primitives: vec!["*".into()],
    });
}

async fn find(fixture: &Fixture, arguments: Value) -> Value {
    let answer = call(&token("alice"), "find_tools", arguments).send(fixture).await.json();
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    answer["result"]["structuredContent"].clone()
}

#[tokio::test]
async fn a_long_list_becomes_two_tools_that_find_and_call_the_others() {
    let fixture = catalog().await;
    let alice = token("alice");
    let mut whole = 0;
    let mut servers: Vec<&str> = tools().map(|[server, ..]| server).collect();
    servers.dedup();
    assert_eq!(servers.len(), 20);
    for server in servers {
        let list = Modern::new(server, &alice, "tools/list", json!({})).send(&fixture).await.json();
        assert_eq!(names(&list).len(), 25);
        whole += list["result"]["tools"].to_string().len();
    }
    let list = Modern::new("all", &alice, "tools/list", json!({})).send(&fixture).await.json();
    assert_eq!(names(&list), ["find_tools", "call_tool"]);
    let short = list["result"]["tools"].to_string().len();
    println!("the list has {} tokens instead of {}", short / BYTES_A_TOKEN, whole / BYTES_A_TOKEN);
    assert!(short * 10 <= whole, "{short} of {whole} bytes");

    let found = find(&fixture, json!({"query": "refund the customer's payment"})).await;
    let tools = found["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 5);
    assert_eq!(tools[0]["name"], "stripe__refund_payment", "{found}");
    assert_eq!(tools[0]["inputSchema"]["properties"]["amount"]["type"], "string");
    assert!(found["more"].as_u64().unwrap() > 0);
    let one = find(&fixture, json!({"query": "refund the customer's payment", "limit": 1})).await;
    assert_eq!(one["tools"], json!([tools[0]]));
    assert_eq!(find(&fixture, json!({"query": "xyzzy"})).await, json!({"tools": [], "more": 0}));
    for arguments in [json!({}), json!({"query": 7})] {
        let answer = call(&alice, "find_tools", arguments).send(&fixture).await;
        assert_eq!(answer.reason(), "invalid_params");
    }
    for through in [call, wrapped] {
        let done =
            through(&alice, "stripe__refund_payment", json!({"message": "m"})).send(&fixture).await.json();
        assert_eq!(done["result"]["structuredContent"], json!({"message": "m"}), "{done}");
    }
}

#[tokio::test]
async fn a_dead_upstream_costs_only_its_own_tools() {
    let fixture = catalog().await;
    let alice = token("alice");
    for [server, name, ..] in tools().step_by(5) {
        let answer = call(&alice, &format!("{server}__{name}"), json!({})).send(&fixture).await.json();
        let reason = &answer["result"]["_meta"]["asp/reason"];
        match server == DOWN {
            true => assert_eq!(*reason, "upstream_unavailable", "{name}: {answer}"),
            false => assert_eq!(answer["result"]["isError"], false, "{name}: {answer}"),
        }
    }
    assert_eq!(listed(&fixture, "all", &alice).await, ["find_tools", "call_tool"]);
    let found = find(&fixture, json!({"query": "weather forecast"})).await;
    let first = found["tools"][0]["name"].as_str().unwrap();
    assert!(first.starts_with("weather__"), "its tools are accepted ones: {found}");
}

/// Prints how long a list takes; other machines and builds differ, so that only a hang fails.
#[tokio::test]
async fn lists_and_searches_are_answered_in_time() {
    let fixture = catalog().await;
    let alice = token("alice");
    let list = Modern::new("all", &alice, "tools/list", json!({}));
    let search =
        call(&alice, "find_tools", json!({"query": "which meeting rooms are free on Friday afternoon"}));
    for (what, request) in [("list", list), ("search", search)] {
        let mut times = Vec::new();
        for _ in 0..300 {
            let began = Instant::now();
            request.send(&fixture).await;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        println!("{what}: median {:?}, p99 {:?}", times[150], times[297]);
        assert!(times[297] < Duration::from_secs(2), "{what}: {:?}", times[297]);
    }
}
