//! Writes the shared vectors in a form that any HTTP client can replay:
//! `cargo run --example edge_vectors --features testkit -- DIR PUBLIC_URL`. `DIR` gets `<snapshot>.bin` (an encoded
//! EdgeSnapshot) and `cases.json` with headers and bodies in hex and freshly minted tokens.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};

use asp_edge::EdgeRole;
use asp_edge::testkit::{Case, Expect, Keys, Setting, load_cases, load_snapshot};
use prost::Message;
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("needs a directory")?);
    let public_url = arguments.next().ok_or("needs the public URL")?;
    let keys = Keys::generate();
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let setting = Setting { keys: &keys, now, public_url: &public_url };
    let cases = load_cases();
    let mut snapshots = BTreeMap::new();
    for case in &cases {
        snapshots.entry(&case.snapshot).or_insert_with(|| load_snapshot(&case.snapshot, &setting));
    }
    for (name, snapshot) in snapshots {
        fs::write(dir.join(format!("{name}.bin")), snapshot.encode_to_vec())?;
    }
    let sent = cases.iter().filter(|case| !case.native_only);
    let cases: Vec<Value> = sent.map(|case| concrete(case, &setting)).collect();
    fs::write(dir.join("cases.json"), serde_json::to_vec(&cases)?)?;
    Ok(())
}

fn concrete(case: &Case, setting: &Setting<'_>) -> Value {
    let headers: Vec<(String, String)> = case
        .request
        .headers(case.token.as_ref(), setting)
        .into_iter()
        .map(|(name, value)| (name, hex(&value)))
        .collect();
    json!({
        "name": case.name,
        "snapshot": case.snapshot,
        "method": case.request.method,
        "path": case.request.path,
        "headers": headers,
        "body": hex(&case.request.body()),
        "gateway": expected(case.expected(EdgeRole::Gateway)),
        "filter": expected(case.expected(EdgeRole::Filter)),
    })
}

fn expected(expect: &Expect) -> Value {
    json!({
        "forward": expect.forward,
        "status": expect.status,
        "reason": expect.reason,
        "jsonrpc": expect.jsonrpc,
        "rest": expect.rest,
        "rest_v03": expect.rest_v03,
        "grpc": expect.grpc,
        "headers": expect.headers,
        "set": expect.set,
        "remove": expect.remove,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
