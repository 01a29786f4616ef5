//! The operator lists of an environment with the `for` that keeps today's calls working.
//!
//! Computed from the primitives that are served; for commands that prepare an upgrade. Keeps true: nothing is suggested that
//! no served primitive uses, and an entry that has a `for` stays as it is.

use asp_platform::operator_list::{self, ListEntry};
use asp_proto::snapshot::Primitive;
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::service_auth::Kind;

use super::ENV_UPSTREAMS;
use super::delegates::ENV_DELEGATE_KEYS;
use super::gateway::ENV_TOKEN_AUDIENCES;
use super::source::Environment;

/// A primitive as a server serves it.
#[derive(Clone, Copy, Debug)]
pub struct ServedPrimitive<'a> {
    pub server: &'a str,
    pub primitive: &'a Primitive,
}

/// Whether a primitive uses the entry of this name.
type Uses = fn(&str, &Primitive) -> bool;

/// One setting to paste.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    pub list: &'static str,
    /// `NAME='…'`.
    pub line: String,
}

/// The lists that have entries without `for`, or lack an audience that served primitives use.
pub fn suggestions(environment: &dyn Environment, served: &[ServedPrimitive<'_>]) -> Vec<Suggestion> {
    let lists: [(&'static str, Uses); 2] = [(ENV_UPSTREAMS, uses_upstream), (ENV_DELEGATE_KEYS, uses_key)];
    let mut found = Vec::new();
    for (list, uses) in lists {
        let mut entries = entries(environment, list);
        if entries.iter().all(|entry| entry.patterns.is_some()) {
            continue;
        }
        for entry in entries.iter_mut().filter(|entry| entry.patterns.is_none()) {
            let name = entry.value.split('=').next().unwrap_or_default().to_owned();
            entry.patterns = Some(patterns(served, |primitive| uses(&name, primitive)));
        }
        found.push(Suggestion { list, line: operator_list::completed(list, &entries) });
    }
    found.extend(audiences(environment, served));
    found
}

fn audiences(environment: &dyn Environment, served: &[ServedPrimitive<'_>]) -> Option<Suggestion> {
    let list = ENV_TOKEN_AUDIENCES;
    let mut entries = entries(environment, list);
    let before = entries.clone();
    let mut origins: Vec<&str> = served.iter().filter_map(|one| audience(one.primitive)).collect();
    origins.sort_unstable();
    origins.dedup();
    for origin in origins {
        let uses = |primitive: &Primitive| audience(primitive) == Some(origin);
        match entries.iter_mut().find(|entry| entry.value == origin) {
            Some(entry) if entry.patterns.is_some() => {}
            Some(entry) => entry.patterns = Some(patterns(served, uses)),
            None => {
                entries.push(ListEntry { value: origin.to_owned(), patterns: Some(patterns(served, uses)) })
            }
        }
    }
    let line = operator_list::completed(list, &entries);
    (entries != before).then_some(Suggestion { list, line })
}

fn entries(environment: &dyn Environment, list: &str) -> Vec<ListEntry> {
    operator_list::parse(&environment.get(list).unwrap_or_default()).unwrap_or_default()
}

fn patterns(served: &[ServedPrimitive<'_>], uses: impl Fn(&Primitive) -> bool) -> Vec<String> {
    let using = served.iter().filter(|one| uses(one.primitive));
    let mut patterns: Vec<String> =
        using.map(|ServedPrimitive { server, primitive }| format!("{server}/{}", primitive.id)).collect();
    patterns.sort_unstable();
    patterns.dedup();
    patterns
}

fn uses_upstream(name: &str, primitive: &Primitive) -> bool {
    let mode = primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref());
    let url = match mode {
        Some(Mode::ProxyHttp(target)) => &target.url,
        Some(Mode::ProxyMcp(target)) => &target.url,
        Some(Mode::ProxyCalls(target)) => &target.url,
        Some(Mode::ProxyOpenai(target)) => &target.url,
        _ => return false,
    };
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    authority.split(['/', ':', '?', '#']).next() == Some(name)
}

fn uses_key(name: &str, primitive: &Primitive) -> bool {
    let mode = primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref());
    matches!(mode, Some(Mode::ProxyOpenai(openai)) if openai.api_key_name == name)
}

fn audience(primitive: &Primitive) -> Option<&str> {
    match primitive.service_auth.as_ref()?.kind.as_ref()? {
        Kind::Token(token) => Some(&token.audience),
        Kind::Exchange(_) | Kind::Credential(_) => None,
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
        let lines: Vec<String> =
            suggestions(&environment, &served).into_iter().map(|found| found.line).collect();
        assert_eq!(
            lines,
            [
                "ASP_UPSTREAMS='crm.internal=http://10.0.0.5;for=crm/find sales/find,old=http://10.0.0.6;for=,\
                 erp=http://10.0.0.7;for=erp/*'",
                "ASP_DELEGATE_KEYS='llm=https://llm.internal=/run/llm;for=crm/label'",
                "ASP_TOKEN_AUDIENCES='http://crm.internal;for=crm/find sales/find'",
            ]
        );
        // With these lines nothing is left to suggest.
        let pasted: Vec<(&str, &str)> = lines
            .iter()
            .map(|line| line.split_once('=').unwrap())
            .map(|(name, value)| (name, value.trim_matches('\'')))
            .collect();
        assert_eq!(suggestions(&BTreeMap::from_iter(pasted), &served), []);
    }
}
