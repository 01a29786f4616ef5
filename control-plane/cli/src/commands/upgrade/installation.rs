//! The stored state of a running installation, read through its admin API.
//!
//! Keeps true: the API of the previous version has every operation required here; what it lacks is `None`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use asp_command::failure::Failure;
use asp_control::catalog;
use asp_issuers::document::Document;
use asp_registry::{CompiledServer, Fault};
use asp_store::control::SourceFile;
use reqwest::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::answer;
use super::super::client::{AdminClient, api_path};

/// Rows in one page of the audit: the API's maximum.
const PAGE: usize = 1_000;
/// Maximum number of pages read: ten million changes.
const MAX_PAGES: usize = 10_000;
/// Suffix of the actor if an admin of the platform made a change.
const BY_PLATFORM: &str = "@platform";

/// Servers, orgs and issuers of an installation.
#[derive(Default)]
pub(super) struct Installation {
    pub(super) servers: Vec<StoredServer>,
    pub(super) orgs: Vec<Org>,
    /// Client issuers of the store.
    pub(super) issuers: Vec<Document>,
    /// Whether its version has offers.
    pub(super) has_offers: bool,
}

/// A stored server as this version compiles it.
pub(super) struct StoredServer {
    pub(super) name: String,
    pub(super) form: Result<CompiledServer, Vec<Fault>>,
    /// Orgs with a stored offer.
    pub(super) offered: BTreeSet<String>,
    /// Whether A2A may be on; false for a version that does not serve it.
    pub(super) a2a_confirmed: bool,
}

/// An org: its policy, its machines and their bound.
#[derive(Default)]
pub(super) struct Org {
    pub(super) name: String,
    /// Servers that it has switched on over some protocol, each with the admin who did so last, if the audit has that.
    pub(super) switched_on: BTreeMap<String, Option<String>>,
    /// Servers that it has switched on or off over A2A.
    pub(super) a2a: BTreeMap<String, bool>,
    pub(super) bindings: Vec<Binding>,
    /// Rate limits in their order.
    pub(super) limits: Vec<StoredLimit>,
    pub(super) keys: Vec<StoredCredential>,
    pub(super) certificates: Vec<StoredCredential>,
    /// Groups and scopes that its machines may have; `None` if its version has no such bound.
    pub(super) bound: Option<Bound>,
}

/// A rate limit, as far as a check needs it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct StoredLimit {
    pub(super) selector: CallerSelector,
}

/// Callers of a rate limit.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(super) struct CallerSelector {
    pub(super) user: String,
    pub(super) machine: String,
    pub(super) wcit: String,
}

impl Default for CallerSelector {
    fn default() -> CallerSelector {
        let any = || "*".to_owned();
        CallerSelector { user: any(), machine: any(), wcit: any() }
    }
}

/// A binding in the API's form.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Binding {
    pub(super) target: BindingTarget,
    pub(super) primitive: Selector,
    pub(super) allowed: bool,
    pub(super) approval: bool,
    pub(super) observe: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) when: Vec<Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BindingTarget {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(rename = "idOrPattern")]
    pub(super) pattern: String,
    #[serde(default)]
    pub(super) issuer: String,
}

/// Primitives of a binding.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Selector {
    pub(super) name: String,
    pub(super) protocol: String,
}

/// A key or a certificate of a machine.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct StoredCredential {
    pub(super) id: String,
    pub(super) machine: String,
    #[serde(default)]
    pub(super) groups: Vec<String>,
    #[serde(default)]
    pub(super) scopes: Vec<String>,
    pub(super) fingerprint: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Bound {
    #[serde(default)]
    pub(super) groups: BTreeSet<String>,
    #[serde(default)]
    pub(super) scopes: BTreeSet<String>,
}

#[derive(Deserialize)]
struct ExposureState {
    server: String,
    protocol: String,
    enabled: bool,
}

/// A change recorded in the audit.
#[derive(Deserialize)]
struct AuditedChange {
    revision: u64,
    actor: String,
    action: String,
    #[serde(default)]
    org: String,
    #[serde(default)]
    detail: String,
}

/// Admins who last switched servers on, by org, server and protocol.
type Switches = BTreeMap<(String, String, String), String>;

impl Org {
    /// Returns the keys and certificates.
    pub(super) fn machines(&self) -> impl Iterator<Item = &StoredCredential> {
        self.keys.iter().chain(&self.certificates)
    }
}

impl Installation {
    /// Reads everything; requires a platform token.
    pub(super) async fn read(api: &AdminClient) -> Result<Installation, Failure> {
        let mut installation = Installation { has_offers: true, ..Installation::default() };
        for server in list::<ServerName>(api, "/api/registry/servers").await? {
            let (server, has_offers) = read_server(api, &server.server).await?;
            installation.has_offers &= has_offers;
            installation.servers.extend(server);
        }
        let (orgs, switches) = changes(api).await?;
        for org in orgs {
            installation.orgs.push(read_org(api, org, &switches).await?);
        }
        installation.issuers = client_issuers(&api.get("/api/issuers").await?.accepted()?);
        Ok(installation)
    }

    /// Returns the servers that this version accepts.
    pub(super) fn compiled(&self) -> impl Iterator<Item = &CompiledServer> {
        self.servers.iter().filter_map(|server| server.form.as_ref().ok())
    }
}

#[derive(Deserialize)]
struct ServerName {
    server: String,
}

async fn list<T: DeserializeOwned>(api: &AdminClient, path: &str) -> Result<Vec<T>, Failure> {
    parse_response(path, api.get(path).await?.accepted()?)
}

fn parse_response<T: DeserializeOwned>(path: &str, value: Value) -> Result<T, Failure> {
    Ok(serde_json::from_value(value).with_context(|| format!("the answer of {path} has an unknown form"))?)
}

/// Reads the server, unless it was deleted since, and whether there are offers.
async fn read_server(api: &AdminClient, name: &str) -> Result<(Option<StoredServer>, bool), Failure> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ServerFiles {
        files: Vec<SourceFile>,
        #[serde(default)]
        a2a_confirmed: bool,
    }
    #[derive(Deserialize)]
    struct OfferList {
        offers: Vec<Offer>,
    }
    #[derive(Deserialize)]
    struct Offer {
        org: String,
    }
    let path = api_path(&["api", "registry", "servers", name]);
    let answer = api.get(&path).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok((None, true));
    }
    let ServerFiles { files, a2a_confirmed } = parse_response(&path, answer.accepted()?)?;
    let path = format!("{path}/offers");
    let answer = api.get(&path).await?;
    let has_offers = answer.status != StatusCode::NOT_FOUND;
    let offered = match has_offers {
        true => parse_response::<OfferList>(&path, answer.accepted()?)?.offers,
        false => Vec::new(),
    };
    let server = StoredServer {
        name: name.to_owned(),
        form: catalog::compile(name, &files),
        offered: offered.into_iter().map(|offer| offer.org).collect(),
        a2a_confirmed,
    };
    Ok((Some(server), has_offers))
}

/// Returns every org in which an admin ever changed something, and who last switched on which server.
async fn changes(api: &AdminClient) -> Result<(BTreeSet<String>, Switches), Failure> {
    let (mut orgs, mut switches) = (BTreeSet::new(), Switches::new());
    let mut before = String::new();
    for _ in 0..MAX_PAGES {
        let page: Vec<AuditedChange> = list(api, &format!("/api/audit?limit={PAGE}{before}")).await?;
        for change in &page {
            note_change(change, &mut orgs, &mut switches);
        }
        let Some(last) = page.last().filter(|_| page.len() == PAGE) else { break };
        before = format!("&before={}", last.revision);
    }
    Ok((orgs, switches))
}

/// Records a change. Changes come newest first, so the first one found for a switch is in force.
fn note_change(change: &AuditedChange, orgs: &mut BTreeSet<String>, switches: &mut Switches) {
    if change.org.is_empty() {
        return;
    }
    orgs.insert(change.org.clone());
    let mut words = change.detail.split(' ');
    if change.action == "exposure.put"
        && let (Some(server), Some(protocol)) = (words.next(), words.next())
    {
        let key = (change.org.clone(), server.to_owned(), protocol.to_owned());
        switches.entry(key).or_insert_with(|| change.actor.clone());
    }
}

async fn read_org(api: &AdminClient, name: String, switches: &Switches) -> Result<Org, Failure> {
    let policy = |part: &str| api_path(&["api", "policy", "orgs", &name, part]);
    let machines = |part: &str| api_path(&["api", "machines", "orgs", &name, part]);
    let mut switched_on: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut a2a = BTreeMap::new();
    for ExposureState { server, protocol, enabled } in list::<ExposureState>(api, &policy("exposure")).await?
    {
        if protocol == "a2a" {
            a2a.insert(server.clone(), enabled);
        }
        if !enabled {
            continue;
        }
        let by = switches.get(&(name.clone(), server.clone(), protocol)).cloned();
        // If several protocols are switched on, keeps the admin who is not of the platform.
        let known = switched_on.entry(server).or_insert_with(|| by.clone());
        if !by.as_deref().is_some_and(|by| is_of_platform(by, &name)) {
            *known = by;
        }
    }
    let bound = api.get(&machines("bound")).await?;
    let bound = match bound.status {
        StatusCode::NOT_FOUND => None,
        _ => Some(parse_response("the bound of machines", bound.accepted()?)?),
    };
    Ok(Org {
        switched_on,
        a2a,
        bindings: list(api, &policy("bindings")).await?,
        limits: list(api, &api_path(&["api", "ratelimits", "orgs", &name])).await?,
        keys: list(api, &machines("keys")).await?,
        certificates: list(api, &machines("certificates")).await?,
        bound,
        name,
    })
}

/// Whether an admin of the platform made a change in an org. The actor of an org's own admin ends with the org's name, which
/// may also be `platform` or `x@platform`; if in doubt, the change counts as the org's.
pub(super) fn is_of_platform(actor: &str, org: &str) -> bool {
    let may_be_of_org = actor.strip_suffix(org).is_some_and(|name| name.ends_with('@'));
    actor.ends_with(BY_PLATFORM) && !may_be_of_org
}

/// Returns the readable client issuers of the store.
fn client_issuers(answer: &Value) -> Vec<Document> {
    let clients = answer::list(answer, "issuers").filter(|issuer| answer::text(issuer, "side") == "clients");
    let document = |issuer: &Value| {
        let name = issuer.get("name")?.as_str()?.to_owned();
        let document: Document = serde_json::from_value(issuer.get("document")?.clone()).ok()?;
        Some(Document { name, ..document })
    };
    clients.filter_map(document).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_switch_of_a_protocol_counts_and_every_org_is_found() {
        let change = |org: &str, actor: &str, action: &str, detail: &str| AuditedChange {
            revision: 1,
            actor: actor.into(),
            action: action.into(),
            org: org.into(),
            detail: detail.into(),
        };
        let (mut orgs, mut switches) = (BTreeSet::new(), Switches::new());
        for change in [
            change("acme", "eve@acme", "exposure.put", "crm mcp enabled=true"),
            change("acme", "ops@platform", "exposure.put", "crm mcp enabled=true"),
            change("globex", "ops@platform", "binding.put", "x"),
            change("", "ops@platform", "server.put", ""),
        ] {
            note_change(&change, &mut orgs, &mut switches);
        }
        assert_eq!(orgs.iter().map(String::as_str).collect::<Vec<_>>(), ["acme", "globex"]);
        assert_eq!(switches.into_values().collect::<Vec<_>>(), ["eve@acme"]);
        assert!(is_of_platform("ops@platform", "acme") && !is_of_platform("eve@acme", "acme"));
        assert!(!is_of_platform("eve@platform", "platform"), "an org of that name");
        assert!(!is_of_platform("eve@acme@platform", "acme@platform"), "an org whose name ends so");
        assert!(is_of_platform("ops@example.com@platform", "example.com"), "an admin with an address");
        assert!(is_of_platform("ops@platform", "acme@platform"));
    }
}
