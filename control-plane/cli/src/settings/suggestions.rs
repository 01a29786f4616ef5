//! Suggested operator lists: those of an environment, with the `for` that keeps today's calls working.
//!
//! Computed from the primitives that are served, for commands that prepare an upgrade. Keeps true: a use is suggested only if
//! a served primitive has it, and an entry that has a `for` stays as it is.

use std::collections::BTreeSet;

use asp_command::environment::Environment;
use asp_platform::operator_list::{self, ListEntry, MAX_PATTERNS};
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::service_auth::Kind;
use asp_proto::snapshot::{Mutation, Primitive};

use super::ENV_UPSTREAMS;
use super::delegates::ENV_DELEGATE_KEYS;
use super::gateway::ENV_TOKEN_AUDIENCES;

/// A primitive with the server that serves it.
#[derive(Clone, Copy, Debug)]
pub struct ServedPrimitive<'a> {
    pub server: &'a str,
    pub primitive: &'a Primitive,
}

/// Whether a primitive uses the entry of this name.
type Uses = fn(&str, &Primitive) -> bool;

/// Lists whose entries have a name, and how primitives use them.
const NAMED_LISTS: [(&str, Uses); 2] = [(ENV_UPSTREAMS, uses_upstream), (ENV_DELEGATE_KEYS, uses_key)];

/// One setting to paste.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    pub list: &'static str,
    /// `NAME='…'`.
    pub line: String,
    /// Uses that the line allows and that the operator may not have intended.
    pub marks: Vec<String>,
}

/// Returns a line for each list that has entries without `for`, or lacks an audience that served primitives use.
pub fn suggestions(environment: &dyn Environment, served: &[ServedPrimitive<'_>]) -> Vec<Suggestion> {
    let mut found = Vec::new();
    for (list, uses) in NAMED_LISTS {
        let mut entries = entries(environment, list);
        if entries.iter().all(|entry| entry.patterns.is_some()) {
            continue;
        }
        let mut marks = Vec::new();
        for entry in entries.iter_mut().filter(|entry| entry.patterns.is_none()) {
            let name = name_of(entry).to_owned();
            let users = users(served, |primitive| uses(&name, primitive));
            marks.extend(widenings(&name, &users));
            entry.patterns = Some(patterns(&users));
        }
        found.push(Suggestion { list, line: operator_list::completed(list, &entries), marks });
    }
    found.extend(audiences(environment, served));
    found
}

/// Returns the list and a text for each served primitive that uses an entry whose `for` does not name it: its calls are
/// refused.
pub fn unlisted(
    environment: &dyn Environment,
    served: &[ServedPrimitive<'_>],
) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for (list, uses) in NAMED_LISTS {
        let entries = entries(environment, list);
        let names: BTreeSet<&str> = entries.iter().map(name_of).collect();
        for name in names {
            // An entry without `for` is suggested with one.
            let is_listed = |one: &ServedPrimitive<'_>| {
                entries.iter().filter(|entry| name_of(entry) == name).any(|entry| {
                    let patterns = entry.patterns.as_ref();
                    patterns.is_none_or(|some| operator_list::allows(some, one.server, &one.primitive.id))
                })
            };
            let users = users(served, |primitive| uses(name, primitive));
            found.extend(users.iter().filter(|one| !is_listed(one)).map(|one| {
                let (server, id) = (one.server, &one.primitive.id);
                let text = format!(
                    "{server}/{id} uses {name} of {list}, but its `for` does not name it: its calls are refused. \
                     Add it there, or remove it from the server"
                );
                (list, text)
            }));
        }
    }
    found
}

fn name_of(entry: &ListEntry) -> &str {
    entry.value.split('=').next().unwrap_or_default()
}

fn audiences(environment: &dyn Environment, served: &[ServedPrimitive<'_>]) -> Option<Suggestion> {
    let list = ENV_TOKEN_AUDIENCES;
    let mut entries = entries(environment, list);
    let before = entries.clone();
    let mut origins: Vec<&str> = served.iter().filter_map(|one| audience(one.primitive)).collect();
    origins.sort_unstable();
    origins.dedup();
    let mut marks = Vec::new();
    for origin in origins {
        let users = users(served, |primitive| audience(primitive) == Some(origin));
        let found = entries.iter_mut().find(|entry| entry.value == origin);
        if found.as_ref().is_some_and(|entry| entry.patterns.is_some()) {
            continue;
        }
        marks.extend(widenings(origin, &users));
        let patterns = Some(patterns(&users));
        match found {
            Some(entry) => entry.patterns = patterns,
            None => entries.push(ListEntry { value: origin.to_owned(), patterns }),
        }
    }
    // An entry that nothing uses applies to no primitive.
    for entry in entries.iter_mut().filter(|entry| entry.patterns.is_none()) {
        entry.patterns = Some(Vec::new());
    }
    let line = operator_list::completed(list, &entries);
    (entries != before).then_some(Suggestion { list, line, marks })
}

fn entries(environment: &dyn Environment, list: &str) -> Vec<ListEntry> {
    operator_list::parse(&environment.get(list).unwrap_or_default()).unwrap_or_default()
}

fn users<'a>(served: &[ServedPrimitive<'a>], uses: impl Fn(&Primitive) -> bool) -> Vec<ServedPrimitive<'a>> {
    served.iter().copied().filter(|one| uses(one.primitive)).collect()
}

/// Returns patterns for the users: their names or, if these are more than an entry may hold, their servers as a whole.
fn patterns(users: &[ServedPrimitive<'_>]) -> Vec<String> {
    let named =
        users.iter().map(|ServedPrimitive { server, primitive }| format!("{server}/{}", primitive.id));
    let named: BTreeSet<String> = named.collect();
    if named.len() <= MAX_PATTERNS {
        return named.into_iter().collect();
    }
    users.iter().map(|one| format!("{}/*", one.server)).collect::<BTreeSet<String>>().into_iter().collect()
}

/// Returns uses of an entry that its owner may not have intended: an entry used to apply to every spec, also of another team.
fn widenings(entry: &str, users: &[ServedPrimitive<'_>]) -> Vec<String> {
    let servers: BTreeSet<&str> = users.iter().map(|one| one.server).collect();
    let mut marks = Vec::new();
    if servers.len() > 1 {
        let all = servers.into_iter().collect::<Vec<_>>().join(", ");
        marks.push(format!("{entry} is used by the servers {all}: keep those that its owner means"));
    }
    if users.len() > MAX_PATTERNS {
        marks.push(format!(
            "{entry} is used by more primitives than it may name: it gets their servers whole"
        ));
    }
    for ServedPrimitive { server, primitive } in users {
        if let Some(method) = mislabelled_method(primitive) {
            let id = &primitive.id;
            marks.push(format!("{server}/{id} is declared read-only, but sends {method} to {entry}"));
        }
    }
    marks
}

/// Returns the method of a primitive that is declared read-only but sends a method that reads do not use.
fn mislabelled_method(primitive: &Primitive) -> Option<&str> {
    let Some(Mode::ProxyHttp(target)) = primitive.runtime.as_ref()?.mode.as_ref() else { return None };
    let is_read = matches!(target.method.as_str(), "" | "GET" | "HEAD");
    (primitive.mutation() == Mutation::ReadOnly && !is_read).then_some(&target.method)
}

fn uses_upstream(name: &str, primitive: &Primitive) -> bool {
    let authority =
        primitive.service_url().and_then(|url| url.split_once("://")).map_or("", |(_, rest)| rest);
    authority.split(['/', ':', '?', '#']).next() == Some(name)
}

fn uses_key(name: &str, primitive: &Primitive) -> bool {
    let mode = primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref());
    matches!(mode, Some(Mode::ProxyOpenai(openai)) if openai.api_key_name == name)
}

fn audience(primitive: &Primitive) -> Option<&str> {
    match primitive.service_auth.as_ref()?.kind.as_ref()? {
        Kind::Token(token) => Some(&token.audience),
        Kind::Exchange(_) | Kind::Credential(_) | Kind::Linked(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use asp_proto::snapshot::{MintedToken, ProxyHttp, ProxyOpenai, Runtime, ServiceAuth};

    use super::*;

    fn primitive(id: &str, mode: Mode, audience: Option<&str>) -> Primitive {
        let token = |audience: &str| Kind::Token(MintedToken { audience: audience.into() });
        Primitive {
            id: id.into(),
            runtime: Some(Runtime { mode: Some(mode) }),
            service_auth: audience.map(|audience| ServiceAuth { kind: Some(token(audience)) }),
            ..Primitive::default()
        }
    }

    #[test]
    fn entries_serve_the_primitives_that_use_them_and_no_others() {
        let http = |url: &str| Mode::ProxyHttp(ProxyHttp { url: url.into(), ..ProxyHttp::default() });
        let model = ProxyOpenai {
            url: "https://llm.internal/v1".into(),
            api_key_name: "llm".into(),
            ..ProxyOpenai::default()
        };
        let find = primitive("find", http("http://crm.internal/find/{id}"), Some("http://crm.internal"));
        let other = primitive("other", http("https://example.com/"), None);
        let label = primitive("label", Mode::ProxyOpenai(model), None);
        let served = [("crm", &find), ("sales", &find), ("crm", &other), ("crm", &label)];
        let served = served.map(|(server, primitive)| ServedPrimitive { server, primitive });
        let environment = BTreeMap::from([
            (ENV_UPSTREAMS, "crm.internal=http://10.0.0.5,old=http://10.0.0.6,erp=http://10.0.0.7;for=erp/*"),
            (ENV_DELEGATE_KEYS, "llm=https://llm.internal=/run/llm"),
        ]);
        let found = suggestions(&environment, &served);
        let marks: Vec<&str> = found.iter().flat_map(|one| &one.marks).map(String::as_str).collect();
        assert_eq!(
            marks,
            [
                "crm.internal is used by the servers crm, sales: keep those that its owner means",
                "http://crm.internal is used by the servers crm, sales: keep those that its owner means",
            ]
        );
        let lines: Vec<String> = found.into_iter().map(|found| found.line).collect();
        assert_eq!(
            lines,
            [
                "ASP_UPSTREAMS='crm.internal=http://10.0.0.5;for=crm/find sales/find,old=http://10.0.0.6;for=,\
                 erp=http://10.0.0.7;for=erp/*'",
                "ASP_DELEGATE_KEYS='llm=https://llm.internal=/run/llm;for=crm/label'",
                "ASP_TOKEN_AUDIENCES='http://crm.internal;for=crm/find sales/find'",
            ]
        );
        let deletes = ProxyHttp {
            method: "DELETE".into(),
            url: "http://crm.internal/x".into(),
            ..ProxyHttp::default()
        };
        let forecast = Primitive {
            mutation: Mutation::ReadOnly.into(),
            ..primitive("forecast", Mode::ProxyHttp(deletes), None)
        };
        let found = suggestions(&environment, &[ServedPrimitive { server: "weather", primitive: &forecast }]);
        assert_eq!(
            found[0].marks,
            ["weather/forecast is declared read-only, but sends DELETE to crm.internal"]
        );
        // With these lines, nothing is left to suggest.
        let pasted: Vec<(&str, &str)> = lines
            .iter()
            .map(|line| line.split_once('=').unwrap())
            .map(|(name, value)| (name, value.trim_matches('\'')))
            .collect();
        assert_eq!(suggestions(&BTreeMap::from_iter(pasted), &served), []);
    }

    #[test]
    fn a_primitive_that_an_entry_leaves_out_is_named() {
        let http = ProxyHttp { url: "http://crm.internal/find".into(), ..ProxyHttp::default() };
        let find = primitive("find", Mode::ProxyHttp(http), None);
        let served = ["crm", "late"].map(|server| ServedPrimitive { server, primitive: &find });
        let lines = |value| unlisted(&BTreeMap::from([(ENV_UPSTREAMS, value)]), &served);
        let left_out = lines("crm.internal=http://10.0.0.5;for=crm/find,other=http://10.0.0.6;for=");
        assert_eq!(left_out.len(), 1, "{left_out:?}");
        assert!(left_out[0].1.starts_with("late/find uses crm.internal of ASP_UPSTREAMS, "), "{left_out:?}");
        assert!(lines("crm.internal=http://10.0.0.5;for=crm/* late/find").is_empty());
        assert!(lines("crm.internal=http://10.0.0.5").is_empty(), "it has no `for` yet");
    }
}
