//! A remote A2A agent as specs of `proxy.a2a`, one task for each skill of its card.
//!
//! Owns: where the card is found, whether its signature holds, which interface calls go to, and the spec of each skill. Keeps
//! true: keys are read at the card's own origin, or at one that the operator names; a card whose signature does not hold is not
//! imported; a credential is sent to the card's origin alone. A2A has no hints about what a skill changes, so each is imported
//! as destructive, like an MCP tool without hints.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, anyhow};
use asp_a2a::Generation;
use asp_a2a::card::{
    AgentBinding, AgentCard, AgentInterface, AgentSkill, CardKey, CardSignature, FORMER_PATH, PATH,
    TEXT_ARGUMENT, verify,
};
use asp_a2a::version::VERSION_HEADER;
use asp_command::failure::Failure;
use asp_command::http_client;
use asp_identity::issuers::credentials::NamedCredentials;
use asp_json::{Json, unmarked};
use asp_registry::pin::pin;
use asp_registry::{MAX_PRIMITIVES, dialect};
use reqwest::header::{ACCEPT, HeaderMap};
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde_json::{Map, Value, json};

use crate::args::ImportArgs;
use crate::files::{ImportResult, free_id, proxy, server_file, spec_path};
use crate::upstream;

/// Maximum size of a card, and of a set of keys, in bytes.
const MAX_CARD: usize = 1 << 20;
/// Maximum duration of one call in seconds: an agent works longer than a tool.
const MAX_RUNTIME: u32 = 600;

/// An agent that was found.
#[derive(Debug)]
pub(super) struct FoundAgent {
    /// URL of its card.
    url: Url,
    card: AgentCard,
    /// Thumbprints of the keys that sign the card and can be read at its origin.
    signers: Vec<String>,
    /// Remarks about its signature, one a line.
    notes: Vec<String>,
}

/// Reads the card of the agent at `place`, which is its URL or that of its card. The operator named the address, so it may be
/// private.
pub(super) async fn read(
    args: &ImportArgs,
    place: &str,
    named: &dyn Fn() -> Result<NamedCredentials, Failure>,
) -> Result<FoundAgent, Failure> {
    let parsed = Url::parse(place).map_err(|error| Failure::bad("--a2a", error.to_string()))?;
    let (settings, headers) = match &args.credential {
        None => (http_client::without_credential(&parsed), HeaderMap::new()),
        Some(name) => {
            let header = upstream::credential_header(name, &parsed, named()?).await?;
            (http_client::with_credential(&parsed), HeaderMap::from_iter([header]))
        }
    };
    let http = super::openapi::http(settings)?;
    for url in candidates(&parsed) {
        let Some(card) = get(&http, &url, &headers).await? else { continue };
        let read = AgentCard::read(&card).ok_or_else(|| anyhow!("{url} is not an agent card"))?;
        let keys = read_keys(&http, &url, &headers, (&card, &args.card_keys)).await?;
        let (signers, notes) = check_signature(&card, keys)?;
        return Ok(FoundAgent { url, card: read, signers, notes });
    }
    Err(anyhow!(
        "there is no agent card at {place}, nor at {PATH} or {FORMER_PATH} below it or at its origin"
    )
    .into())
}

/// Returns the addresses at which the card may be, the likeliest first.
fn candidates(place: &Url) -> Vec<Url> {
    if place.path().ends_with(".json") {
        return vec![place.clone()];
    }
    let mut found: Vec<Url> = Vec::new();
    for base in [place.path().trim_end_matches('/'), ""] {
        for path in [PATH, FORMER_PATH] {
            let mut url = place.clone();
            url.set_path(&format!("{base}{path}"));
            url.set_query(None);
            if !found.contains(&url) {
                found.push(url);
            }
        }
    }
    found
}

/// Returns the request for a JSON document. It names the version, because an agent of both may serve clients of 0.3 another form of
/// its card, which is not the one that it signs.
fn request(http: &Client, url: &Url, headers: &HeaderMap) -> RequestBuilder {
    let request = http.get(url.clone()).header(ACCEPT, "application/json");
    request.header(VERSION_HEADER, Generation::V10.as_str()).headers(headers.clone())
}

/// Gets a JSON document; `None` if there is none at this address.
async fn get(http: &Client, url: &Url, headers: &HeaderMap) -> Result<Option<Json>, Failure> {
    let response = request(http, url, headers).send().await.with_context(|| format!("get {url}"))?;
    match response.status() {
        status if status.is_success() => {}
        StatusCode::NOT_FOUND => return Ok(None),
        StatusCode::UNAUTHORIZED if headers.is_empty() => {
            return Err(anyhow!("get {url}: 401; name a credential for it with --credential").into());
        }
        status => return Err(anyhow!("get {url}: {status}").into()),
    }
    let body = asp_outbound::body(response, MAX_CARD).await.map_err(|why| anyhow!("get {url}: {why}"))?;
    let json = Json::parse(unmarked(&body)).map_err(|_| anyhow!("get {url}: the document is not JSON"))?;
    Ok(Some(json))
}

/// Keys that may sign a card.
#[derive(Debug, Default)]
struct CardKeys {
    /// Keys at the card's origin.
    own: Vec<CardKey>,
    /// Keys at an origin that the operator names.
    named: Vec<CardKey>,
    /// Addresses that nobody named.
    unread: Vec<String>,
}

/// Reads the keys that the signatures of a card name.
async fn read_keys(
    http: &Client,
    card_url: &Url,
    headers: &HeaderMap,
    (card, allowed): (&Json, &[String]),
) -> Result<CardKeys, Failure> {
    let mut keys = CardKeys::default();
    let addresses: BTreeSet<String> =
        CardSignature::all_of(card).into_iter().filter_map(|signature| signature.jku).collect();
    for address in addresses {
        let Ok(url) = Url::parse(&address) else { continue };
        let is_own = url.origin() == card_url.origin();
        let is_named = |name: &String| Url::parse(name).is_ok_and(|name| name.origin() == url.origin());
        if !is_own && !allowed.iter().any(is_named) {
            // In the form of a URL, which has no line break.
            keys.unread.push(url.to_string());
            continue;
        }
        let none = HeaderMap::new();
        let found = get(http, &url, if is_own { headers } else { &none }).await?;
        let found = found.map(|set| CardKey::of_jwks(set.text())).unwrap_or_default();
        let list = if is_own { &mut keys.own } else { &mut keys.named };
        list.extend(found);
    }
    Ok(keys)
}

/// Checks the signature of a card. Returns the thumbprints to pin, and remarks.
fn check_signature(card: &Json, keys: CardKeys) -> Result<(Vec<String>, Vec<String>), Failure> {
    let CardKeys { own, named, unread } = keys;
    if CardSignature::all_of(card).is_empty() {
        let note = "note: the card is unsigned: nothing proves who wrote it";
        return Ok((Vec::new(), vec![note.to_owned()]));
    }
    let mut notes: Vec<String> = unread
        .iter()
        .map(|address| {
            format!("note: keys at {address} are not read, because that is another origin: name it with --card-keys")
        })
        .collect();
    let holds = |keys: &[CardKey]| -> BTreeSet<String> {
        let signs = |key: &&CardKey| verify(card, std::slice::from_ref(*key)).is_ok();
        keys.iter().filter(signs).map(CardKey::thumbprint).collect()
    };
    let signers = holds(&own);
    let others = holds(&named);
    if signers.is_empty() && others.is_empty() {
        if own.is_empty() && named.is_empty() {
            notes.push("note: the card's signature is not verified: none of its keys can be read".to_owned());
            return Ok((Vec::new(), notes));
        }
        let fault = verify(card, &[own, named].concat()).err();
        let why = fault.map(|fault| fault.to_string()).unwrap_or_default();
        return Err(anyhow!("nothing was written: {why}").into());
    }
    if signers.is_empty() {
        notes.push(
            "note: the card's keys are not pinned: gateways read keys only at the card's own origin"
                .to_owned(),
        );
    }
    Ok((signers.into_iter().collect(), notes))
}

/// Converts the skills of an agent to specs.
pub(super) fn convert(args: &ImportArgs, found: &FoundAgent) -> Result<ImportResult, Failure> {
    let FoundAgent { url, card, signers, notes } = found;
    let speaks = |interface: &&AgentInterface| interface.binding != AgentBinding::Grpc;
    let interface =
        card.interfaces.iter().find(speaks).ok_or_else(|| {
            anyhow!("{url} names no interface over JSON-RPC or HTTP+JSON of A2A 1.0 or 0.3")
        })?;
    let target = AgentTarget { args, interface, card: card_address(args, url)?, found };
    let mut result = ImportResult {
        files: BTreeMap::new(),
        ids: Vec::new(),
        said: summary(found, interface),
        dropped: Vec::new(),
        renamed: notes.clone(),
        requirements: Vec::new(),
    };
    for name in args.except.iter().filter(|name| !card.skills.iter().any(|skill| skill.id == **name)) {
        result.renamed.push(format!("note: --except {name:?}: the agent has no such skill"));
    }
    let mut taken = BTreeSet::new();
    let mut skills = BTreeSet::new();
    for skill in card.skills.iter().filter(|skill| !args.except.contains(&skill.id)) {
        if !skills.insert(skill.id.as_str()) {
            let line = format!("skill {:?} is left out: the card has this id before", skill.id);
            result.dropped.push(line);
        } else if result.ids.len() >= MAX_PRIMITIVES {
            let why = format!("a server has at most {MAX_PRIMITIVES} primitives");
            result.dropped.push(format!("skill {:?} is left out: {why}", skill.id));
        } else {
            let id = free_id(&args.server, &skill.id, &mut taken);
            let exposed = id.strip_prefix(&format!("{}.", args.server)).unwrap_or(&id);
            if exposed != skill.id {
                result.renamed.push(format!("renamed: skill {:?} is served as {exposed}", skill.id));
            }
            let spec = spec(args, skill, (&id, exposed), target.runtime(skill, signers));
            let text = serde_json::to_string_pretty(&spec).unwrap_or_default();
            result.files.insert(spec_path(&args.server, &id), text + "\n");
            result.ids.push(id);
        }
    }
    if result.ids.is_empty() {
        return Err(anyhow!("no skill of {url} can be imported").into());
    }
    let description = "What the remote A2A agent offers.";
    let file = server_file(&args.server, description, &result.ids);
    result.files.insert(format!("{}/server.yaml", args.server), file);
    Ok(result)
}

fn summary(found: &FoundAgent, interface: &AgentInterface) -> String {
    let signed = if found.signers.is_empty() { "without pinned keys" } else { "signed by pinned keys" };
    let binding = match interface.binding {
        AgentBinding::Rest => "HTTP+JSON",
        AgentBinding::JsonRpc | AgentBinding::Grpc => "JSON-RPC",
    };
    let count = found.card.skills.len();
    let version = interface.generation;
    format!("{count} skills from {} ({binding} of A2A {version}, {signed})", found.url)
}

/// Returns the URL of the card for gateways: below the origin of `--proxy-url`, if that is named.
fn card_address(args: &ImportArgs, card: &Url) -> Result<String, Failure> {
    let Some(proxy) = &args.proxy_url else { return Ok(card.to_string()) };
    let mut url = Url::parse(proxy).map_err(|error| Failure::bad("--proxy-url", error.to_string()))?;
    url.set_path(card.path());
    url.set_query(card.query());
    Ok(url.to_string())
}

/// The agent, as every spec names it.
struct AgentTarget<'a> {
    args: &'a ImportArgs,
    interface: &'a AgentInterface,
    card: String,
    found: &'a FoundAgent,
}

impl AgentTarget<'_> {
    /// Returns the `runtime` of a skill's spec.
    fn runtime(&self, skill: &AgentSkill, signers: &[String]) -> Value {
        let AgentTarget { args, interface, card, found } = self;
        let url = args.proxy_url.as_deref().unwrap_or(&interface.url);
        let mut target = Map::new();
        target.insert("url".into(), url.into());
        target.insert("skill".into(), skill.id.as_str().into());
        if interface.binding == AgentBinding::Rest {
            target.insert("binding".into(), "rest".into());
        }
        if interface.generation != Generation::V10 {
            target.insert("version".into(), interface.generation.as_str().into());
        }
        if let Some(tenant) = &interface.tenant {
            target.insert("tenant".into(), tenant.as_str().into());
        }
        if skill.input_schema.is_none() {
            target.insert("textArgument".into(), TEXT_ARGUMENT.into());
        }
        if !found.card.has_streams {
            target.insert("streaming".into(), false.into());
        }
        target.insert("card".into(), card.as_str().into());
        target.insert("pin".into(), pin(&skill.to_item()).into());
        for (name, list) in [("signers", signers), ("pages", args.pages.as_slice())] {
            if !list.is_empty() {
                target.insert(name.into(), json!(list));
            }
        }
        proxy("a2a", Value::Object(target), args)
    }
}

fn spec(args: &ImportArgs, skill: &AgentSkill, (id, exposed): (&str, &str), runtime: Value) -> Value {
    let summary = if skill.description.is_empty() { &skill.name } else { &skill.description };
    let mut exposure = Map::new();
    exposure.insert("mcp".into(), json!({"tool": {"enabled": true, "name": exposed}}));
    if skill.input_schema.is_none() {
        exposure.insert("a2a".into(), json!({"skill": {"textArgument": TEXT_ARGUMENT}}));
    }
    json!({
        "id": id,
        "name": skill.name,
        "type": "task",
        "version": "1.0.0",
        "owner": args.owner,
        "summary": summary,
        "mutation": "destructive",
        "annotations": {"openWorldHint": true},
        "capabilities": {
            "maxRuntimeSeconds": MAX_RUNTIME, "supportsProgress": true, "supportsCancellation": true,
        },
        "security": {"riskClass": "medium"},
        "primitiveSchema": {"input_schema": dialect::arguments(Some(&skill.arguments()))},
        "exposure": exposure,
        "runtime": runtime,
    })
}

#[cfg(test)]
mod tests {
    use reqwest::header::{AUTHORIZATION, HeaderValue};

    use super::*;
    use crate::report::ImportReport;
    use crate::write::{compiled, write_import};

    fn args() -> ImportArgs {
        ImportArgs { mcp: None, a2a: Some("https://up.example".into()), ..crate::specs::tests::args() }
    }

    fn agent(card: Value, signers: &[&str]) -> FoundAgent {
        FoundAgent {
            url: Url::parse("https://up.example/team/.well-known/agent-card.json").unwrap(),
            card: AgentCard::read(&card.into()).unwrap(),
            signers: signers.iter().map(|signer| (*signer).to_owned()).collect(),
            notes: Vec::new(),
        }
    }

    fn card() -> Value {
        json!({"name": "a", "url": "https://up.example/rpc", "protocolVersion": "0.3.0",
            "capabilities": {"streaming": true},
            "skills": [{"id": "urn:talk/it", "name": "Talk", "description": "Talks.", "tags": ["t"]},
                {"id": "count", "name": "Count", "description": "Counts.", "tags": ["t"],
                    "inputSchema": {"type": "object", "properties": {"to": {"type": "integer"}}}},
                {"id": "count", "name": "Again", "description": "d", "tags": ["t"]}]})
    }

    fn file(result: &ImportResult, name: &str) -> Value {
        serde_json::from_str(&result.files[&format!("up/{name}.json")]).unwrap()
    }

    #[test]
    fn each_skill_is_a_task_that_names_the_interface_the_card_and_the_keys() {
        let result = convert(&args(), &agent(card(), &["key"])).unwrap();
        assert_eq!(result.ids, ["up.urn-talk-it", "up.count"]);
        assert_eq!(result.dropped.len(), 1, "{:?}", result.dropped);
        let talk = file(&result, "urn-talk-it");
        let runtime = &talk["runtime"]["a2a"];
        assert_eq!((&runtime["url"], &runtime["version"]), (&json!("https://up.example/rpc"), &json!("0.3")));
        assert_eq!(runtime["card"], "https://up.example/team/.well-known/agent-card.json");
        assert_eq!((&runtime["skill"], &runtime["signers"]), (&json!("urn:talk/it"), &json!(["key"])));
        assert_eq!(talk["primitiveSchema"]["input_schema"]["required"], json!(["message"]));
        assert_eq!((&runtime["textArgument"], &talk["mutation"]), (&json!("message"), &json!("destructive")));
        let count = file(&result, "count");
        assert_eq!(count["primitiveSchema"]["input_schema"]["properties"]["to"]["type"], "integer");
        assert_eq!(count["runtime"]["a2a"].get("textArgument"), None);

        let through = ImportArgs { proxy_url: Some("http://agent.internal/x".into()), ..args() };
        let runtime =
            file(&convert(&through, &agent(card(), &[])).unwrap(), "count")["runtime"]["a2a"].clone();
        assert_eq!(runtime["url"], "http://agent.internal/x");
        assert_eq!(runtime["card"], "http://agent.internal/team/.well-known/agent-card.json");
    }

    #[test]
    fn the_first_interface_that_gateways_speak_is_used() {
        let mut only_grpc = card();
        only_grpc["preferredTransport"] = "GRPC".into();
        assert!(convert(&args(), &agent(only_grpc, &[])).is_err());
        let mut several = card();
        several["supportedInterfaces"] = json!([
            {"url": "up.example:1", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
            {"url": "https://up.example/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0",
                "tenant": "t"}]);
        several["capabilities"] = json!({});
        let runtime =
            file(&convert(&args(), &agent(several, &[])).unwrap(), "count")["runtime"]["a2a"].clone();
        let expected = json!({"url": "https://up.example/rest", "skill": "count", "binding": "rest", "tenant": "t",
            "streaming": false, "card": "https://up.example/team/.well-known/agent-card.json",
            "pin": runtime["pin"]});
        assert_eq!(runtime, expected);
    }

    #[test]
    fn an_import_is_served_and_a_change_of_a_skill_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let args = ImportArgs { out: root.path().to_owned(), ..args() };
        let import = |card: Value, accept: bool| {
            let args = ImportArgs { accept, ..args.clone() };
            write_import(&args, convert(&args, &agent(card, &[])).unwrap(), &mut ImportReport::default())
        };
        import(card(), false).unwrap();
        let served = || compiled(&asp_registry::read_dir(root.path()).unwrap(), "up").expect("it compiles");
        assert_eq!(served().primitives.len(), 2);
        import(card(), false).expect("nothing has changed");
        let mut changed = card();
        changed["skills"][1]["description"] = "Counts down.".into();
        assert!(import(changed.clone(), false).is_err());
        import(changed, true).unwrap();
        assert!(served().primitives.iter().any(|primitive| primitive.summary == "Counts down."));
    }

    #[test]
    fn a_card_is_looked_for_below_the_agent_and_at_its_origin() {
        let at = |place: &str| -> Vec<String> {
            candidates(&Url::parse(place).unwrap()).iter().map(Url::to_string).collect()
        };
        let root = ["https://a/.well-known/agent-card.json", "https://a/.well-known/agent.json"];
        assert_eq!(at("https://a/x.json"), ["https://a/x.json"]);
        assert_eq!(at("https://a"), root);
        let below = ["https://a/t/.well-known/agent-card.json", "https://a/t/.well-known/agent.json"];
        assert_eq!(at("https://a/t/?q=1"), [below, root].concat());
    }

    #[test]
    fn a_card_is_read_as_a_client_of_1_0() {
        let url = Url::parse("https://a/.well-known/agent-card.json").unwrap();
        let http = crate::openapi::http(http_client::without_credential(&url)).unwrap();
        let credential = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer x"))]);
        let request = request(&http, &url, &credential).build().unwrap();
        assert_eq!(request.headers()["a2a-version"], "1.0");
        assert_eq!(request.headers()["authorization"], "Bearer x");
    }

    /// The card's author writes it, and it is shown.
    #[test]
    fn the_address_of_keys_elsewhere_is_one_line() {
        // {"alg":"EdDSA","kid":"k","jku":"https://keys.example/a\nwrote\u001b[2J 9 files"}
        let protected = "eyJhbGciOiAiRWREU0EiLCAia2lkIjogImsiLCAiamt1IjogImh0dHBzOi8va2V5cy5leGFtcGxlL2Fcbndyb3RlXHUwMDFiWzJKIDkgZmlsZXMifQ";
        let signatures = json!([{"protected": protected, "signature": "AAAA"}]);
        let card: Json = json!({"name": "a", "skills": [], "signatures": signatures}).into();
        let url = Url::parse("https://up.example/card.json").unwrap();
        let http = crate::openapi::http(http_client::without_credential(&url)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let none = HeaderMap::new();
        let keys = runtime.block_on(read_keys(&http, &url, &none, (&card, &[]))).unwrap();
        assert_eq!(keys.unread, ["https://keys.example/awrote%1B[2J%209%20files"]);
    }

    #[test]
    fn a_signature_that_does_not_hold_is_refused_and_an_unsigned_card_is_noted() {
        let card = |signatures: Value| -> Json {
            json!({"name": "a", "description": "d", "skills": [], "signatures": signatures}).into()
        };
        let (signers, notes) = check_signature(&card(json!([])), CardKeys::default()).unwrap();
        assert!(signers.is_empty() && notes[0].contains("unsigned"), "{notes:?}");
        // {"alg":"EdDSA","kid":"k"}
        let signed = card(json!([{"protected": "eyJhbGciOiJFZERTQSIsImtpZCI6ImsifQ", "signature": "AAAA"}]));
        let elsewhere = CardKeys { unread: vec!["https://keys.example/k".into()], ..CardKeys::default() };
        let (signers, notes) = check_signature(&signed, elsewhere).unwrap();
        assert!(signers.is_empty() && notes.concat().contains("--card-keys"), "{notes:?}");
        let jwk =
            r#"{"kty":"OKP","crv":"Ed25519","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
        let own = vec![CardKey::of_jwk(jwk).unwrap()];
        assert!(check_signature(&signed, CardKeys { own, ..CardKeys::default() }).is_err());
    }
}
