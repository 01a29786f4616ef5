//! Any headers and body: no panic, both roles agree on a refusal, no internal header survives.
//!
//! Input: lines `name: value`, an empty line, the body. `:method` and `:path` are ordinary lines.
#![no_main]

use std::sync::OnceLock;

use asp_edge::{Edge, Env, Header, EdgeRole, Snapshot, Step, Verdict};
use asp_proto::snapshot::{AuthScheme, EdgeServer, EdgeSnapshot, Protocol, Region, Route};
use libfuzzer_sys::fuzz_target;

struct Bench {
    snapshot: Snapshot,
    filter: Edge,
    gateway: Edge,
}

fuzz_target!(|input: &[u8]| {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    let bench = BENCH.get_or_init(bench);
    let (headers, body) = split(input);
    let filter = judge(&bench.filter, &bench.snapshot, &headers, body);
    let gateway = judge(&bench.gateway, &bench.snapshot, &headers, body);
    match (filter, gateway) {
        (Verdict::Reply(filter), Verdict::Reply(gateway)) => assert_eq!(filter, gateway),
        (Verdict::Reply(_), Verdict::Forward(_)) => panic!("only the filter refuses"),
        (Verdict::Forward(forward), _) => {
            let internal = headers.iter().filter(|(name, _)| name.starts_with("x-asp-"));
            for (name, _) in internal {
                assert!(forward.remove.contains(name));
            }
        }
    }
});

fn bench() -> Bench {
    let server = |name: &str, scheme: AuthScheme| EdgeServer {
        name: name.into(),
        protocols: vec![Protocol::Mcp as i32, Protocol::A2a as i32, Protocol::Rest as i32],
        default_allow: true,
        schemes: vec![scheme as i32],
        max_body_bytes: 4096,
        ..EdgeServer::default()
    };
    let route = Route {
        server: "*".into(),
        method: "tools/call".into(),
        primitive: "a*".into(),
        cluster: "p".into(),
    };
    let message = EdgeSnapshot {
        revision: 1,
        public_url: "https://h".into(),
        dev: true,
        servers: vec![
            server("open", AuthScheme::None),
            server("jwt", AuthScheme::Jwt),
            server("opaque", AuthScheme::Opaque),
            EdgeServer { hosts: vec!["agent.h".into()], ..server("agent", AuthScheme::None) },
        ],
        default_agent: "open".into(),
        routes: vec![route],
        regions: vec![Region { org: "*".into(), region: "r".into(), cluster: "c".into(), here: false }],
        ..EdgeSnapshot::default()
    };
    let snapshot = Snapshot::from_message(message).expect("a good snapshot");
    Bench { snapshot, filter: Edge::new(EdgeRole::Filter), gateway: Edge::new(EdgeRole::Gateway) }
}

fn split(input: &[u8]) -> (Vec<Header>, &[u8]) {
    let end = input.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = match end {
        Some(end) => (&input[..end], &input[end + 2..]),
        None => (input, &[][..]),
    };
    let headers = head.split(|byte| *byte == b'\n').filter_map(|line| {
        // The first colon of a pseudo-header belongs to its name.
        let colon = line.iter().skip(1).position(|byte| *byte == b':')? + 1;
        let name = String::from_utf8(line[..colon].to_ascii_lowercase()).ok()?;
        Some((name, line[colon + 1..].to_vec()))
    });
    (headers.collect(), body)
}

fn judge(edge: &Edge, snapshot: &Snapshot, headers: &[Header], body: &[u8]) -> Verdict {
    let env = Env { now_ms: 2_000_000_000_000, random: [1; 8], trace: asp_edge::Trace::new([1; 24]) };
    match edge.on_headers(snapshot, headers, body.is_empty(), &env) {
        Step::Decided(verdict) => verdict,
        Step::NeedBody(pending) if body.len() > pending.max_body => {
            Verdict::Reply(edge.body_too_large(&pending))
        }
        Step::NeedBody(pending) => edge.on_body(snapshot, *pending, body, &env),
    }
}
