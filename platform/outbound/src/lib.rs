//! Outgoing HTTP: two clients, one that reaches public addresses only and one for allow-listed upstreams.
//!
//! An allow-list entry `{name, url, primitives}` lets specs of these primitives use `http(s)://name/…`: the request
//! goes to the entry's scheme, host and port, with the spec's path, which stays at or below the entry's. Keeps true: a
//! listed name serves only the primitives that its entry names and is never looked up as a public one; no redirects, no
//! proxies from the environment, no cookies, no compressed responses; a name is resolved once per connection and every
//! address is checked; names that are looked up for one org take no place of another's.

mod lookups;
mod path;
pub mod service_text;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use asp_platform::address::is_public;
use asp_platform::operator_list;
use asp_proto::snapshot::Upstream;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, Response, Url, redirect};

use lookups::Lookups;
pub use path::is_below;

/// Connection timeout: a dead host must not hold a call for longer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum silence of an upstream.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum wait before a request is repeated: longer than any call.
pub const LONGEST_WAIT: Duration = Duration::from_secs(86_400);
/// Maximum number of public names that one pair of clients looks up at a time for requests, and for checks. A lookup has a
/// thread until its name server answers, which may be that of a caller, and all lookups and files of a process have 512.
const LOOKUPS: usize = 320;
const CHECKS: usize = 64;
/// Maximum numbers of those of one holder, such as an org.
const LOOKUPS_EACH: usize = 64;
const CHECKS_EACH: usize = 8;
/// Maximum number of idle connections kept per host.
const IDLE_PER_HOST: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    #[error("build the HTTP client: {0}")]
    Client(reqwest::Error),
    #[error("the service's URL is not valid")]
    Url,
    #[error("the service's address is not allowed")]
    Denied,
    /// Text for clients; the log names the entry and the primitive.
    #[error("the platform's operator does not let this primitive use the service")]
    NotServed,
    #[error("the platform's operator does not let this primitive use that path of the service")]
    Path,
}

/// Primitive that a request is sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester<'a> {
    pub server: &'a str,
    pub primitive: &'a str,
}

/// The two HTTP clients.
pub struct Outbound {
    public: Client,
    listed: Client,
    checks: Arc<Lookups>,
}

/// Target of a request and the client to use.
pub struct Destination<'a> {
    pub client: &'a Client,
    pub url: Url,
}

impl Outbound {
    pub fn new() -> Result<Outbound, OutboundError> {
        Outbound::with_silence(READ_TIMEOUT)
    }

    /// Creates clients that tolerate a longer silence of upstreams.
    pub fn with_silence(silence: Duration) -> Result<Outbound, OutboundError> {
        // Without this header a service may compress its responses (RFC 9110 section 12.5.3), which are not decompressed.
        let plain = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
        let builder = || {
            Client::builder()
                .default_headers(plain.clone())
                .redirect(redirect::Policy::none())
                // A proxy would resolve the names itself: addresses would go unchecked, and its operator would see
                // keys.
                .no_proxy()
                .connect_timeout(CONNECT_TIMEOUT)
                .read_timeout(silence)
                .pool_max_idle_per_host(IDLE_PER_HOST)
                .user_agent(concat!("asp/", env!("CARGO_PKG_VERSION")))
        };
        let resolver = PublicResolver(Arc::new(Lookups::new(LOOKUPS, LOOKUPS_EACH)));
        Ok(Outbound {
            public: builder().dns_resolver(Arc::new(resolver)).build().map_err(OutboundError::Client)?,
            listed: builder().build().map_err(OutboundError::Client)?,
            checks: Arc::new(Lookups::new(CHECKS, CHECKS_EACH)),
        })
    }

    /// Returns the destination for a URL from the operator's own settings; never for one from a spec or a caller.
    pub fn trusted(&self, url: &str) -> Result<Destination<'_>, OutboundError> {
        Ok(Destination { client: &self.listed, url: Url::parse(url).map_err(|_| OutboundError::Url)? })
    }

    /// Checks `url`, or resolves it to the allow-list entry that its host names, if that entry serves the primitive.
    pub fn destination(
        &self,
        url: &str,
        upstreams: &[Upstream],
        by: Requester<'_>,
    ) -> Result<Destination<'_>, OutboundError> {
        let mut url = Url::parse(url).map_err(|_| OutboundError::Url)?;
        let host = url.host_str().ok_or(OutboundError::Url)?.to_owned();
        let mut named = upstreams.iter().filter(|upstream| upstream.name == host).peekable();
        if named.peek().is_none() {
            return self.public(url);
        }
        let Requester { server, primitive } = by;
        let mut denied = OutboundError::NotServed;
        for upstream in named {
            if !operator_list::allows(&upstream.primitives, server, primitive) {
                continue;
            }
            let target = Url::parse(&upstream.url).map_err(|_| OutboundError::Url)?;
            if !path::is_below(url.path(), target.path()) {
                denied = OutboundError::Path;
                continue;
            }
            url.set_scheme(target.scheme()).map_err(|()| OutboundError::Url)?;
            url.set_host(target.host_str()).map_err(|_| OutboundError::Url)?;
            url.set_port(target.port()).map_err(|()| OutboundError::Url)?;
            return Ok(Destination { client: &self.listed, url });
        }
        let primitive = format!("{server}/{primitive}");
        let why = match denied {
            OutboundError::Path => "the path is not below the entry's",
            _ => "the entry's `for` does not name the primitive",
        };
        tracing::warn!(
            list = "ASP_UPSTREAMS",
            entry = host,
            primitive,
            why,
            "request refused by an operator list"
        );
        Err(denied)
    }

    /// Returns the destination for a public https URL, or for one at an origin that the operator lists
    /// (`scheme://host[:port]`), which may be plain http or private.
    pub fn of_origins(&self, url: &str, origins: &[String]) -> Result<Destination<'_>, OutboundError> {
        let url = Url::parse(url).map_err(|_| OutboundError::Url)?;
        let origin = url.origin();
        let is_listed = |listed: &String| Url::parse(listed).is_ok_and(|listed| listed.origin() == origin);
        let has_credentials = !url.username().is_empty() || url.password().is_some();
        if origins.iter().any(is_listed) && !has_credentials {
            return Ok(Destination { client: &self.listed, url });
        }
        self.public(url)
    }

    /// Checks a URL as [`Outbound::of_origins`] does, and that the name of a public one resolves to public addresses alone,
    /// before anything is sent there. The lookup is one of `holder`. Returns the URL's origin.
    pub async fn check_origin(
        &self,
        url: &str,
        origins: &[String],
        holder: &str,
    ) -> Result<String, OutboundError> {
        let Destination { client, url } = self.of_origins(url, origins)?;
        if std::ptr::eq(client, &self.public)
            && let Some(name) = url.domain()
        {
            let looking = public_addresses(self.checks.clone(), Some(holder.to_owned()), name);
            let found = tokio::time::timeout(CONNECT_TIMEOUT, looking).await;
            found.map_err(|_| OutboundError::Denied)?.map_err(|_| OutboundError::Denied)?;
        }
        Ok(url.origin().ascii_serialization())
    }

    fn public(&self, url: Url) -> Result<Destination<'_>, OutboundError> {
        let host = url.host_str().ok_or(OutboundError::Url)?;
        let has_credentials = !url.username().is_empty() || url.password().is_some();
        if url.scheme() != "https" || has_credentials || matches!(url.port(), Some(0 | 25)) {
            return Err(OutboundError::Denied);
        }
        // A literal address never reaches the resolver.
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
        if literal.is_ok_and(|address| !is_public(address)) {
            return Err(OutboundError::Denied);
        }
        Ok(Destination { client: &self.public, url })
    }
}

tokio::task_local! {
    /// Holder of the lookups of the requests that a task sends.
    static HOLDER: String;
}

/// Runs work that may look up a caller's names. The lookups of its requests are those of `holder`, but for requests in tasks of
/// their own.
pub async fn run_for<T>(holder: &str, work: impl Future<Output = T>) -> T {
    HOLDER.scope(holder.to_owned(), work).await
}

/// Sends a request whose name may be a caller's. Its lookup is one of `holder`.
pub async fn send_for(holder: &str, request: RequestBuilder) -> reqwest::Result<Response> {
    run_for(holder, request.send()).await
}

/// Reads a response body of at most `most` bytes; `Err` says what went wrong, without addresses.
pub async fn body(mut response: Response, most: usize) -> Result<Vec<u8>, &'static str> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| "the service's answer was interrupted")? {
        if body.len() + chunk.len() > most {
            return Err("the service's answer is too large");
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Returns the seconds of `Retry-After` (RFC 9110 section 10.2.3); a date is ignored, since clocks differ.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

/// Resolver that refuses a name with any address that is not public.
struct PublicResolver(Arc<Lookups>);

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let lookups = self.0.clone();
        // The task that sends the request polls this; another one may wait for the result.
        let holder = HOLDER.try_with(Clone::clone).ok();
        Box::pin(async move {
            let addresses = public_addresses(lookups, holder, name.as_str()).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Resolves a name; refuses one with any address that is not public.
async fn public_addresses(
    lookups: Arc<Lookups>,
    holder: Option<String>,
    name: &str,
) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
    let place = lookups.enter(holder).await?;
    let name = name.to_owned();
    // In a task of its own: a lookup for which nobody waits any more still has its thread.
    let looking = tokio::spawn(async move {
        let found = tokio::net::lookup_host((name.as_str(), 0)).await.map(Vec::from_iter);
        drop(place);
        found
    });
    let found: Vec<SocketAddr> = looking.await??;
    if found.is_empty() || !found.iter().all(|address| is_public(address.ip())) {
        return Err(Box::new(OutboundError::Denied));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY: Requester<'static> = Requester { server: "crm", primitive: "find" };

    /// Slow names take the threads of neither other lookups nor requests.
    #[tokio::test]
    async fn the_checks_of_names_are_bounded_and_those_of_addresses_need_no_lookup() {
        let outbound = Outbound::new().unwrap();
        let mut others = Vec::new();
        for number in 0..CHECKS {
            others.push(outbound.checks.enter(Some(number.to_string())).await.unwrap());
        }
        let mut checked = std::pin::pin!(outbound.check_origin("https://localhost/", &[], "acme"));
        tokio::select! {
            biased;
            _ = &mut checked => panic!("it has to wait"),
            () = tokio::task::yield_now() => {}
        }
        assert!(outbound.check_origin("https://8.8.8.8/", &[], "acme").await.is_ok());
        drop(others);
        assert!(checked.await.is_err(), "it is not public");
    }

    /// Names whose name server does not answer hold the places of their own org alone.
    #[tokio::test]
    async fn the_lookup_of_a_request_is_one_of_its_holder() {
        let lookups = Arc::new(Lookups::new(2, 1));
        let resolver = Arc::new(PublicResolver(lookups.clone()));
        let client = Client::builder().no_proxy().dns_resolver(resolver).build().unwrap();
        let _slow = lookups.enter(Some("acme".into())).await.unwrap();
        let sent = |holder| send_for(holder, client.get("https://localhost:1/"));
        let waits = Duration::from_millis(200);
        assert!(tokio::time::timeout(waits, sent("acme")).await.is_err(), "it has to wait");
        assert!(sent("globex").await.is_err(), "its address is not public");
    }

    #[tokio::test]
    async fn the_lookups_of_all_requests_of_a_call_are_those_of_its_holder() {
        let lookups = Arc::new(Lookups::new(2, 1));
        let resolver = Arc::new(PublicResolver(lookups.clone()));
        let client = Client::builder().no_proxy().dns_resolver(resolver).build().unwrap();
        let _slow = lookups.enter(Some("acme".into())).await.unwrap();
        let call = |holder| {
            let client = client.clone();
            run_for(holder, async move { client.get("https://localhost:1/").send().await.is_err() })
        };
        let waits = Duration::from_millis(200);
        assert!(tokio::time::timeout(waits, call("acme")).await.is_err(), "it has to wait");
        assert!(call("globex").await, "its address is not public");
    }

    #[test]
    fn a_listed_origin_may_be_private_and_only_that_origin() {
        let outbound = Outbound::new().unwrap();
        let origins = ["http://127.0.0.1:8180".to_owned(), "https://login.internal".to_owned()];
        for url in
            ["http://127.0.0.1:8180/realms/x", "https://login.internal:443/keys", "https://example.com/keys"]
        {
            assert!(outbound.of_origins(url, &origins).is_ok(), "{url}");
        }
        for url in [
            "http://127.0.0.1:8181/x",
            "https://127.0.0.1:8180/x",
            "http://login.internal/keys",
            "http://127.0.0.1:8180@example.com/",
            "http://user@127.0.0.1:8180/",
            "http://example.com/keys",
        ] {
            assert!(outbound.of_origins(url, &origins).is_err(), "{url}");
        }
    }

    #[test]
    fn private_literals_plain_http_and_credentials_are_refused() {
        let outbound = Outbound::new().unwrap();
        for url in [
            "https://127.0.0.1/",
            "https://127.1/",
            "https://0x7f000001/",
            "https://017700000001/",
            "https://2130706433/",
            "https://0/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://169.254.169.254/latest",
            "https://127.0.0.1.:443/",
            "http://example.com/",
            "ftp://example.com/",
            "file:///etc/passwd",
            "gopher://example.com/",
            "https://user@example.com/",
            "https://user:secret@example.com/",
            "https://example.com:0/",
            "https://example.com:25/",
            "https:///",
            "not a url",
            "",
        ] {
            assert!(outbound.destination(url, &[], BY).is_err(), "{url}");
        }
        assert!(outbound.destination("https://example.com/x", &[], BY).is_ok());
    }

    fn upstream(url: &str, primitives: &[&str]) -> Upstream {
        let primitives = primitives.iter().map(|pattern| (*pattern).to_owned()).collect();
        Upstream { name: "crm.internal".into(), url: url.into(), primitives }
    }

    #[test]
    fn an_allow_listed_name_goes_to_its_entry_and_only_that_name() {
        let outbound = Outbound::new().unwrap();
        let upstreams = [upstream("http://127.0.0.1:3001", &["*"])];
        let destination = outbound.destination("http://crm.internal/mcp?x=1", &upstreams, BY).unwrap();
        assert_eq!(destination.url.as_str(), "http://127.0.0.1:3001/mcp?x=1");
        for other in ["http://127.0.0.1:3001/mcp", "http://internal/mcp", "http://crm.internal.example.com/"]
        {
            assert!(outbound.destination(other, &upstreams, BY).is_err(), "{other}");
        }
    }

    #[test]
    fn an_entry_serves_the_primitives_it_names() {
        let outbound = Outbound::new().unwrap();
        for (patterns, served) in [
            (&["crm/find"][..], true),
            (&["crm/*"][..], true),
            (&["crm/fi*"][..], true),
            (&["*"][..], true),
            (&["other/*", "crm/find-all"][..], false),
            // No primitive, and still no access by its address or over TLS as a public name.
            (&[][..], false),
        ] {
            let upstreams = [upstream("http://127.0.0.1:3001", patterns)];
            for url in ["http://crm.internal/x", "https://crm.internal/x", "http://CRM.internal:81/x"] {
                let found = outbound.destination(url, &upstreams, BY);
                assert_eq!(found.is_ok(), served, "{patterns:?} {url}");
            }
            assert!(outbound.destination("http://127.0.0.1:3001/x", &upstreams, BY).is_err());
        }
    }

    #[test]
    fn each_entry_of_a_name_opens_its_own_paths() {
        let outbound = Outbound::new().unwrap();
        let upstreams =
            [upstream("http://127.0.0.1:1/all", &["ops/*"]), upstream("http://127.0.0.1:1/v1/", &["crm/*"])];
        for (path, served) in
            [("/v1/x", true), ("/v1", true), ("/all/x", false), ("/v1/../all/x", false), ("/", false)]
        {
            let found = outbound.destination(&format!("http://crm.internal{path}"), &upstreams, BY);
            assert_eq!(found.is_ok(), served, "{path}");
        }
    }

    #[tokio::test]
    async fn a_name_is_resolved_before_anything_is_sent_unless_its_origin_is_listed() {
        let outbound = Outbound::new().unwrap();
        let origins = ["http://localhost:8080".to_owned()];
        let listed = outbound.check_origin("http://localhost:8080/hook?x=1", &origins, "acme").await.unwrap();
        assert_eq!(listed, "http://localhost:8080");
        for url in
            ["https://localhost/", "https://localhost:8080/", "https://127.0.0.1/", "http://example.com/"]
        {
            assert!(outbound.check_origin(url, &origins, "acme").await.is_err(), "{url}");
        }
        // A public address needs no resolution.
        assert_eq!(outbound.check_origin("https://8.8.8.8/x", &[], "acme").await.unwrap(), "https://8.8.8.8");
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_loopback_is_refused_after_resolution() {
        let outbound = Outbound::new().unwrap();
        let destination = outbound.destination("https://localhost:1/", &[], BY).unwrap();
        let error = destination.client.get(destination.url).send().await.unwrap_err();
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        let mut denied = false;
        while let Some(current) = cause {
            denied |= current.to_string().contains("not allowed");
            cause = current.source();
        }
        assert!(denied, "{error:?}");
    }

    /// The test runs itself again with an environment that names a proxy, because a process must not change its own.
    #[tokio::test]
    async fn a_proxy_that_the_environment_names_is_not_used() {
        const TARGET: &str = "ASP_TEST_OUTBOUND_TARGET";
        if let Ok(target) = std::env::var(TARGET) {
            let outbound = Outbound::new().unwrap();
            let destination = outbound.trusted(&target).unwrap();
            let answer = destination.client.get(destination.url).send().await.unwrap();
            assert_eq!(answer.status(), 204, "the proxy answered");
            return;
        }
        let target = answering(204).await;
        let proxy = answering(502).await;
        let mut again = tokio::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "tests::a_proxy_that_the_environment_names_is_not_used"]);
        for name in ["NO_PROXY", "no_proxy", "REQUEST_METHOD"] {
            again.env_remove(name);
        }
        for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            again.env(name, &proxy);
        }
        let done = again.env(TARGET, &target).output().await.unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
    }

    /// Starts a server that answers every connection with `status`; returns its URL.
    async fn answering(status: u16) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await.unwrap();
                let answer = format!("HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        url
    }
}
