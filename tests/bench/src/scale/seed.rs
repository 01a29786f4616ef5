//! What is stored before anything is measured, as an archive of `asp db import`.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use asp_e2e::tool;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::process::Command;

/// Of what is stored, past the revisions of all of it.
const REVISION: u64 = 1_000;
/// Unix milliseconds: revocations of a year ago that live for long.
const REVOKED_AT: u64 = 1_764_000_000_000;
const REVOKED_UNTIL: u64 = 4_102_444_800_000;

/// How much of everything.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Size {
    pub orgs: usize,
    /// Of each org.
    pub bindings: usize,
    pub servers: usize,
    /// Of each server.
    pub primitives: usize,
    pub revocations: usize,
}

impl Size {
    pub(crate) fn steps(quick: bool) -> Vec<Size> {
        let size = |orgs| Size { orgs, bindings: 100, servers: 1_000, primitives: 20, revocations: 100_000 };
        match quick {
            true => vec![Size { orgs: 20, bindings: 10, servers: 5, primitives: 4, revocations: 100 }],
            false => [100, 1_000, 10_000].map(size).to_vec(),
        }
    }
}

pub(super) fn org(number: usize) -> String {
    format!("org-{number:05}")
}

pub(super) fn server(number: usize) -> String {
    format!("s{number:04}")
}

pub(super) fn primitive(server: usize, number: usize) -> String {
    format!("s{server:04}.p{number:02}")
}

/// As `/api/revocations` takes it.
pub(super) fn token_hash(token: &str) -> String {
    hex(&Sha256::digest(token))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The files of a server whose first tool says `version`.
pub(super) fn files(number: usize, version: &str) -> Value {
    files_of(number, 20, version)
}

fn files_of(number: usize, primitives: usize, version: &str) -> Value {
    let name = server(number);
    let listed: Vec<String> =
        (0..primitives).map(|place| format!("{{ref: {name}/{}}}", primitive(number, place))).collect();
    let mut files = vec![json!({
        "path": format!("{name}/server.yaml"),
        "text": format!(
            "apiVersion: asp/v1\nname: {name}\ndescription: One of many.\nprotocols: [mcp]\ndefaultExposure: allow\n\
             auth: {{schemes: [jwt], issuers: [dev]}}\nprimitives: [{}]\n",
            listed.join(", ")
        ),
    })];
    for place in 0..primitives {
        let id = primitive(number, place);
        let said = if place == 0 { version } else { "1.0.0" };
        let text = format!(
            "id: {id}\nname: Tool {place}\ntype: tool\nversion: {said}\nowner: team-{number}@example.com\n\
             summary: Echoes what it is given, as it said in {said}.\nmutation: read_only\n\
             primitiveSchema:\n  input_schema:\n    type: object\n    properties:\n      text: {{type: string, \
             maxLength: 1000, description: What is echoed.}}\n      count: {{type: integer, minimum: 1, maximum: 10}}\n\
             \x20   required: [text]\nruntime: {{mode: builtin, entrypoint: echo}}\n"
        );
        files.push(json!({"path": format!("{name}/{id}.yaml"), "text": text}));
    }
    Value::Array(files)
}

/// Fills the database of a control plane with this state directory.
pub(super) async fn write(state: &Path, size: Size) -> Result<()> {
    std::fs::create_dir_all(state)?;
    let scratch = tempfile::tempdir()?;
    let [empty, full] = ["empty.jsonl", "full.jsonl"].map(|name| scratch.path().join(name));
    let other = scratch.path().join("state");
    std::fs::create_dir(&other)?;
    asp(&other, &["db", "export"], &empty).await?;
    let lines = BufReader::new(File::open(&empty)?).lines().collect::<std::io::Result<Vec<String>>>()?;
    let mut out = BufWriter::new(File::create(&full)?);
    let mut table = String::new();
    for line in lines {
        let value: Value = serde_json::from_str(&line)?;
        if let Some(name) = value.get("table").and_then(Value::as_str) {
            table = name.to_owned();
            writeln!(out, "{line}")?;
            continue;
        }
        if value.get("end").is_none() {
            // A row of the empty database, which is replaced, is the revision.
            if value.is_object() {
                writeln!(out, "{line}")?;
            }
            continue;
        }
        let mut digest = Sha256::new();
        let mut count = 0_u64;
        rows(&table, size, &mut |row| {
            let line = format!("{row}\n");
            digest.update(&line);
            count += 1;
            out.write_all(line.as_bytes())
        })?;
        writeln!(out, "{}", json!({"end": table, "rows": count, "sha256": hex(&digest.finalize())}))?;
    }
    out.into_inner()?;
    asp(state, &["db", "import"], &full).await
}

async fn asp(state: &Path, arguments: &[&str], file: &Path) -> Result<()> {
    let mut command = Command::new(tool::asp()?);
    command.args(arguments).arg(file).env("ASP_STATE_DIR", state).env_remove("ASP_DATABASE_URL");
    let output = command.output().await.context("asp db")?;
    ensure!(output.status.success(), "asp {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The rows of a table, in the order of its key.
fn rows(table: &str, size: Size, put: &mut dyn FnMut(Value) -> std::io::Result<()>) -> std::io::Result<()> {
    let Size { orgs, bindings, servers, primitives, revocations } = size;
    match table {
        "control_revision" => put(json!([1, REVISION]))?,
        "resources" => {
            for number in 0..orgs {
                put(json!([format!("bindings/{}", org(number)), 1]))?;
            }
            for number in 0..revocations {
                put(json!([format!("revocation/r{number:06}"), 1]))?;
            }
            for number in 0..servers {
                put(json!([format!("server/{}", server(number)), 1]))?;
            }
        }
        "servers" => {
            for number in 0..servers {
                let files = files_of(number, primitives, "1.0.0").to_string();
                put(json!([server(number), files, "seeded", REVOKED_AT]))?;
            }
        }
        "bindings" => {
            for number in 0..orgs {
                for place in 0..bindings {
                    let target = format!("user-{place:04}");
                    let primitive = primitive(place % servers, place % primitives);
                    put(json!([org(number), "user", target, "", primitive, "mcp", "", 1, 0, 0, ""]))?;
                }
            }
        }
        "revocations" => {
            for number in 0..revocations {
                let (id, hash) = (format!("r{number:06}"), format!("{number:064x}"));
                put(json!([id, "token_hash", "", hash, "", "", REVOKED_AT, REVOKED_UNTIL, 1]))?;
            }
        }
        _ => {}
    }
    Ok(())
}
