//! Endpoints of models: those that specs name, and the operator's own.
//!
//! Owns: the operator's settings for them. Keeps true: a key is sent only to the origin that its entry names,
//! whatever a spec says; it is never printed.

use std::collections::BTreeMap;
use std::time::Duration;

use asp_outbound::Requester;
use asp_platform::operator_list;
use asp_platform::secret::Secret;
use asp_proto::snapshot::ProxyOpenai;
use asp_registry::origin_of;

/// The operator's settings. If empty, only the client answers, or an endpoint that a spec names and that needs no
/// key.
#[derive(Clone, Debug, Default)]
pub struct Endpoints {
    /// Endpoint for delegates that name none.
    pub default: Option<DefaultEndpoint>,
    /// Keys by the name that specs use.
    pub keys: BTreeMap<String, EndpointKey>,
}

/// The operator's own endpoint.
#[derive(Clone, Debug)]
pub struct DefaultEndpoint {
    /// Base URL, http(s), without a query; it may be private, because the operator configures it.
    pub url: String,
    pub model: String,
    pub key: Option<Secret>,
    /// Whether it accepts the output schema as `response_format`.
    pub json_schema: bool,
    /// Delegates that it answers, in the form of `for` in an operator list.
    pub primitives: Vec<String>,
}

/// A key and its permitted use.
#[derive(Clone, Debug)]
pub struct EndpointKey {
    /// Scheme and authority as specs write them, e.g. `https://llm.internal`.
    pub origin: String,
    pub key: Secret,
    /// Delegates that may use it, in the form of `for` in an operator list.
    pub primitives: Vec<String>,
}

/// One endpoint, with everything that a request needs.
#[derive(Clone, Debug)]
pub(super) struct Endpoint<'a> {
    pub url: &'a str,
    pub model: &'a str,
    pub key: Option<&'a Secret>,
    /// Name of the key in the spec; empty if there is none.
    pub key_name: &'a str,
    /// The operator has no such key, or not for this origin or delegate.
    pub lacks_key: bool,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    pub timeout: Option<Duration>,
    pub headers: Option<&'a BTreeMap<String, String>>,
    pub json_schema: bool,
    /// Whether the operator configured it, so that its address is not checked.
    pub is_operators: bool,
}

impl Endpoints {
    /// Returns the endpoint that the spec names, or else the operator's.
    pub(super) fn of<'a>(
        &'a self,
        written: Option<&'a ProxyOpenai>,
        by: Requester<'_>,
    ) -> Option<Endpoint<'a>> {
        match written {
            Some(written) => Some(self.of_spec(written, by)),
            None => self.default_for(by).map(|own| Endpoint {
                url: &own.url,
                model: &own.model,
                key: own.key.as_ref(),
                key_name: "",
                lacks_key: false,
                temperature: None,
                max_tokens: None,
                timeout: None,
                headers: None,
                json_schema: own.json_schema,
                is_operators: true,
            }),
        }
    }

    /// Returns the operator's endpoint, if it answers this delegate.
    pub(super) fn default_for(&self, by: Requester<'_>) -> Option<&DefaultEndpoint> {
        let serves = |own: &&DefaultEndpoint| operator_list::allows(&own.primitives, by.server, by.primitive);
        self.default.as_ref().filter(serves)
    }

    fn of_spec<'a>(&'a self, written: &'a ProxyOpenai, by: Requester<'_>) -> Endpoint<'a> {
        let named = self.keys.get(&written.api_key_name);
        let key = named.filter(|named| {
            named.origin.eq_ignore_ascii_case(origin_of(&written.url))
                && operator_list::allows(&named.primitives, by.server, by.primitive)
        });
        Endpoint {
            url: &written.url,
            model: &written.model,
            key: key.map(|named| &named.key),
            key_name: &written.api_key_name,
            lacks_key: key.is_none() && !written.api_key_name.is_empty(),
            temperature: written.temperature,
            max_tokens: (written.max_tokens > 0).then_some(written.max_tokens),
            timeout: (written.timeout_ms > 0).then(|| Duration::from_millis(written.timeout_ms.into())),
            headers: Some(&written.headers),
            json_schema: written.json_schema,
            is_operators: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_only_to_the_origin_of_its_entry() {
        let primitives = vec!["crm/ask*".to_owned()];
        let key = EndpointKey { origin: "https://llm.internal".into(), key: "s3cret".into(), primitives };
        let by = Requester { server: "crm", primitive: "ask" };
        let endpoints = Endpoints { keys: BTreeMap::from([("llm".to_owned(), key)]), default: None };
        let rows = [
            ("https://llm.internal/v1", "llm", true),
            ("https://LLM.internal/v1", "llm", true),
            ("https://llm.internal.example.com/v1", "llm", false),
            ("https://evil.example.com/llm.internal", "llm", false),
            ("http://llm.internal/v1", "llm", false),
            ("https://llm.internal:8443/v1", "llm", false),
            ("https://llm.internal@evil.example.com/v1", "llm", false),
            ("https://llm.internal/v1", "other", false),
        ];
        for (url, name, has_key) in rows {
            let written =
                ProxyOpenai { url: url.into(), api_key_name: name.into(), ..ProxyOpenai::default() };
            let endpoint = endpoints.of(Some(&written), by).unwrap();
            assert_eq!((endpoint.key.is_some(), endpoint.lacks_key), (has_key, !has_key), "{url} {name}");
        }
        let url = "https://llm.internal/v1".to_owned();
        let written = ProxyOpenai { url, api_key_name: "llm".into(), ..ProxyOpenai::default() };
        for (server, primitive, has_key) in
            [("crm", "ask-more", true), ("crm", "other", false), ("evil", "ask", false), ("crm", "as", false)]
        {
            let endpoint = endpoints.of(Some(&written), Requester { server, primitive }).unwrap();
            assert_eq!(
                (endpoint.key.is_some(), endpoint.lacks_key),
                (has_key, !has_key),
                "{server}/{primitive}"
            );
        }
        assert!(!format!("{endpoints:?}").contains("s3cret"));
        assert!(endpoints.of(None, by).is_none());
    }

    /// Invariant I-12.
    #[test]
    fn the_operators_endpoint_answers_the_delegates_that_it_names() {
        let by = Requester { server: "crm", primitive: "ask" };
        for (listed, is_answered) in
            [(vec!["crm/ask*"], true), (vec!["*"], true), (vec!["evil/*"], false), (vec![], false)]
        {
            let default = DefaultEndpoint {
                url: "http://127.0.0.1:1/v1".into(),
                model: "small".into(),
                key: Some("s3cret".into()),
                json_schema: false,
                primitives: listed.iter().map(|pattern| (*pattern).to_owned()).collect(),
            };
            let endpoints = Endpoints { default: Some(default), ..Endpoints::default() };
            assert_eq!(endpoints.of(None, by).is_some(), is_answered, "{listed:?}");
        }
    }
}
