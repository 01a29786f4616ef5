//! Replays the shared vectors natively, once as the filter and once as the gateway (invariant I-1); the ones
//! in `headers.json` send every internal header from outside (I-9).

use std::collections::BTreeMap;

use asp_edge::testkit::{Case, Expect, Keys, ReadRefusal, Setting, load_cases, load_snapshot};
use asp_edge::{Edge, EdgeRole, Env, Forward, Reply, Snapshot, Step, Trace, Verdict};

const NOW: u64 = 2_000_000_000;
const PUBLIC_URL: &str = "https://mcp.example.com";

#[test]
fn every_vector_is_judged_as_written() {
    let keys = Keys::generate();
    let setting = Setting { keys: &keys, now: NOW, public_url: PUBLIC_URL };
    let cases = load_cases();
    let mut snapshots = BTreeMap::new();
    for case in &cases {
        let snapshot =
            || Snapshot::from_message(load_snapshot(&case.snapshot, &setting)).expect("a good snapshot");
        snapshots.entry(case.snapshot.clone()).or_insert_with(snapshot);
    }
    let mut faults = Vec::new();
    for role in [EdgeRole::Filter, EdgeRole::Gateway] {
        let edge = Edge::new(role);
        for case in &cases {
            // Evaluates each case twice: the second time the token comes from the cache.
            for _ in 0..2 {
                let verdict = judge(&edge, &snapshots[&case.snapshot], case, &setting);
                if let Err(fault) = compare(case.expected(role), &case.request.body(), verdict) {
                    faults.push(format!("{} as {role:?}: {fault}", case.name));
                }
            }
        }
    }
    assert!(cases.len() > 150, "only {} vectors were found", cases.len());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn judge(edge: &Edge, snapshot: &Snapshot, case: &Case, setting: &Setting<'_>) -> Verdict {
    let env = Env { now_ms: NOW * 1000, random: [7; 8], trace: Trace::new([7; 24]) };
    let pseudo = [(":method", &case.request.method), (":path", &case.request.path)];
    let mut headers: Vec<_> =
        pseudo.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
    headers.extend(case.request.headers(case.token.as_ref(), setting));
    let body = case.request.body();
    match edge.on_headers(snapshot, &headers, body.is_empty(), &env) {
        Step::Decided(verdict) => verdict,
        Step::NeedBody(pending) if body.len() > pending.max_body => {
            Verdict::Reply(edge.body_too_large(&pending))
        }
        Step::NeedBody(pending) => edge.on_body(snapshot, *pending, &body, &env),
    }
}

fn compare(expect: &Expect, sent: &[u8], verdict: Verdict) -> Result<(), String> {
    match (expect.forward, verdict) {
        (true, Verdict::Forward(forward)) => compare_forward(expect, &forward),
        (false, Verdict::Reply(reply)) => compare_reply(expect, sent, &reply),
        (true, Verdict::Reply(reply)) => Err(format!("refused: {} {:?}", reply.status, reply.reason)),
        (false, Verdict::Forward(_)) => Err("let through".to_owned()),
    }
}

fn compare_forward(expect: &Expect, forward: &Forward) -> Result<(), String> {
    for (name, value) in &expect.set {
        let value = value.as_str().unwrap_or_default();
        let found = forward.set.iter().find(|(set, _)| set == name).map(|(_, value)| value.as_str());
        if found.is_none() || (value != "*" && found != Some(value)) {
            return Err(format!("{name} is {found:?}, not {value:?}"));
        }
    }
    let mut remove = forward.remove.clone();
    remove.sort();
    if remove != expect.remove {
        return Err(format!("removes {remove:?}, not {:?}", expect.remove));
    }
    let envelope = forward.admitted.envelope.as_ref();
    let found = (
        envelope.map(|envelope| envelope.method.clone()).filter(|method| !method.is_empty()),
        envelope.and_then(|envelope| envelope.name.clone()),
        forward.admitted.caller.as_ref().map(|caller| caller.user.clone()),
    );
    let wanted = (
        expect.method.clone().or(found.0.clone()),
        expect.primitive.clone().or(found.1.clone()),
        expect.user.clone().or(found.2.clone()),
    );
    if found == wanted { Ok(()) } else { Err(format!("found {found:?}, not {wanted:?}")) }
}

fn compare_reply(expect: &Expect, sent: &[u8], reply: &Reply) -> Result<(), String> {
    let header = |name: &str| {
        reply.headers.iter().find(|(header, _)| *header == name).map(|(_, value)| value.as_str())
    };
    let refusal = ReadRefusal::read(header, &reply.body);
    let reason = reply.reason.map(|reason| reason.as_str().to_owned());
    if reply.status != expect.status || refusal != expect.refusal() || reason != expect.reason {
        let body = String::from_utf8_lossy(&reply.body);
        return Err(format!("{} {reason:?} {refusal:?} {body}, not {expect:?}", reply.status));
    }
    for (name, value) in &expect.headers {
        let value = value.as_str().unwrap_or_default().replace("${public_url}", PUBLIC_URL);
        let found = header(name);
        if found != Some(value.as_str()) {
            return Err(format!("{name} is {found:?}, not {value:?}"));
        }
    }
    let body: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let sent: serde_json::Value = serde_json::from_slice(sent).unwrap_or_default();
    if body.get("id").is_some_and(|id| !id.is_null() && Some(id) != sent.get("id")) {
        return Err(format!("the body is {body}"));
    }
    Ok(())
}
