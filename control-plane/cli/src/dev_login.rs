//! Login of clients in development: the development issuer's page, where a person chooses who to be, and its token endpoint.
//! Servers stand before it as before any issuer, and are its only client (`docs/identity.md`).
//!
//! Owns the paths below `/dev-login/` of the admin port. Refuses: redirects to anything but the callback of a server, hosts
//! other than this machine, and codes that are older than [`LIFE`], redeemed or without their PKCE verifier (RFC 7636). Keeps true:
//! it is served only where nothing but this machine can reach it, and to processes of the accounts that can read the state directory,
//! because it asks for no password.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use asp_issuers::trusted_issuer::{DEVELOPMENT_NAME, MAX_TTL};
use asp_peer::Accounts;
use asp_platform::address;
use asp_platform::clock;
use asp_proto::snapshot::{IssuerAccess, Login};
use asp_protocols::html::{self, escaped};
use axum::Router;
use axum::extract::{ConnectInfo, RawQuery, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderValue, StatusCode, header, uri::Authority};
use parking_lot::Mutex;
use reqwest::Url;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::dev_issuer::{ClientToken, DevIssuer};
use crate::stack::ready::ORG;

/// Client that stands for the servers.
const CLIENT: &str = "asp-servers";
/// Users that a person may be, in org [`ORG`].
const USERS: [&str; 2] = ["alice", "bob"];
/// Life of a code in milliseconds (RFC 6749 section 4.1.2 recommends at most ten minutes).
const LIFE: u64 = 60_000;
/// Maximum number of codes that are not redeemed yet; the oldest goes first.
const MAX_CODES: usize = 1_000;
/// Maximum size of the parameters of a request for a code, in bytes.
const MAX_ASKED: usize = 16 << 10;

/// The development issuer as an authorization server.
pub(crate) struct DevLogin {
    issuer: Arc<DevIssuer>,
    public_url: String,
    /// Address of the admin port.
    admin: SocketAddr,
    /// Origin of the admin port.
    origin: String,
    /// Accounts whose processes may use it.
    accounts: Accounts,
    codes: Mutex<VecDeque<IssuedCode>>,
}

/// A code that is not redeemed yet.
struct IssuedCode {
    code: String,
    redirect: String,
    challenge: String,
    user: &'static str,
    groups: Vec<String>,
    scopes: Vec<String>,
    /// Unix milliseconds.
    expires_at: u64,
}

/// Parameters of a query or a form.
type Parameters = HashMap<String, String>;

impl DevLogin {
    pub(crate) fn new(
        issuer: Arc<DevIssuer>,
        public_url: &str,
        admin: SocketAddr,
        accounts: Accounts,
    ) -> DevLogin {
        let public_url = public_url.to_owned();
        let origin = format!("http://{admin}");
        DevLogin { issuer, public_url, admin, origin, accounts, codes: Mutex::default() }
    }

    /// Origin of its endpoints, which gateways must be allowed to reach.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the login as gateways receive it.
    pub(crate) fn access(&self) -> IssuerAccess {
        let login = Login {
            client_id: CLIENT.to_owned(),
            authorization_endpoint: format!("{}/dev-login/authorize", self.origin),
            token_endpoint: format!("{}/dev-login/token", self.origin),
            without_resource: true,
            ..Login::default()
        };
        IssuerAccess { issuer: DEVELOPMENT_NAME.to_owned(), login: Some(login), ..IssuerAccess::default() }
    }

    /// Returns the page on which a person chooses.
    fn page(&self, asked: &Parameters) -> Result<Response, &'static str> {
        self.check(asked)?;
        let hidden: String = ["redirect_uri", "state", "code_challenge", "scope"]
            .map(|name| (name, asked.get(name).map(String::as_str).unwrap_or_default()))
            .map(|(name, value)| format!("<input type=hidden name={name} value=\"{}\">", escaped(value)))
            .concat();
        let buttons: String =
            USERS.map(|user| format!("<button name=user value={user}>{user} of {ORG}</button>")).concat();
        let body = format!(
            "<h1>Who are you?</h1><p>This platform runs in development and asks for no password.</p>\
             <form method=post action=choose>{hidden}<input type=hidden name=client_id value={CLIENT}>\
             <p><label>Groups, separated by spaces: <input name=groups></label></p>{buttons}</form>"
        );
        Ok(html::page(StatusCode::OK, "Development login", &body, "no-referrer"))
    }

    /// Returns the redirect to the server with a code for the chosen user.
    fn choose(&self, asked: &Parameters) -> Result<String, &'static str> {
        let redirect = self.check(asked)?;
        let chosen = asked.get("user").map(String::as_str).unwrap_or_default();
        let user = USERS.into_iter().find(|user| *user == chosen).ok_or("There is no such user.")?;
        let code = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        let mut url = Url::parse(redirect).map_err(|_| "The redirect is not a URL.")?;
        url.query_pairs_mut().append_pair("code", &code);
        if let Some(state) = asked.get("state") {
            url.query_pairs_mut().append_pair("state", state);
        }
        let words = |name: &str| -> Vec<String> {
            let text = asked.get(name).map(String::as_str).unwrap_or_default();
            text.split_ascii_whitespace().map(str::to_owned).collect()
        };
        let mut codes = self.codes.lock();
        while codes.len() >= MAX_CODES {
            codes.pop_front();
        }
        codes.push_back(IssuedCode {
            code,
            redirect: redirect.to_owned(),
            challenge: asked.get("code_challenge").cloned().unwrap_or_default(),
            user,
            groups: words("groups"),
            scopes: words("scope"),
            expires_at: clock::now_ms() + LIFE,
        });
        Ok(url.into())
    }

    /// Checks a request for a code; returns its redirect, which is the callback of a server.
    fn check<'a>(&self, asked: &'a Parameters) -> Result<&'a str, &'static str> {
        if asked.get("client_id").map(String::as_str) != Some(CLIENT) {
            return Err("Only the platform's servers log people in here.");
        }
        if asked.values().map(String::len).sum::<usize>() > MAX_ASKED {
            return Err("The request is too long.");
        }
        let redirect = asked.get("redirect_uri").map(String::as_str).unwrap_or_default();
        let server = redirect.strip_prefix(self.public_url.as_str()).and_then(|rest| rest.strip_prefix('/'));
        let server = server.and_then(|rest| rest.strip_suffix("/oauth/callback")).unwrap_or_default();
        let is_label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        match !server.is_empty() && server.bytes().all(is_label) {
            true => Ok(redirect),
            false => Err("The redirect is not the callback of a server of this platform."),
        }
    }

    /// Returns the token response for a code; the error is the description of an `invalid_grant`.
    fn redeem(&self, asked: &Parameters) -> Result<Value, &'static str> {
        let text = |name: &str| asked.get(name).map(String::as_str).unwrap_or_default();
        let mut codes = self.codes.lock();
        let at =
            codes.iter().position(|issued| issued.code == text("code")).ok_or("the code is not known")?;
        let issued = codes.remove(at).ok_or("the code is not known")?;
        drop(codes);
        if issued.expires_at < clock::now_ms() || issued.redirect != text("redirect_uri") {
            return Err("the code has expired, or is for another redirect_uri");
        }
        if URL_SAFE_NO_PAD.encode(Sha256::digest(text("code_verifier"))) != issued.challenge {
            return Err("code_verifier does not match the code_challenge");
        }
        let token = ClientToken {
            org: ORG.to_owned(),
            user: issued.user.to_owned(),
            scopes: issued.scopes.clone(),
            groups: issued.groups.clone(),
            audience: self.issuer.audience().to_owned(),
            ttl: MAX_TTL,
        };
        let token = self.issuer.mint_client(&token).map_err(|_| "no token can be minted")?;
        Ok(json!({
            "access_token": token.expose(),
            "token_type": "Bearer",
            "expires_in": MAX_TTL.as_secs(),
            "scope": issued.scopes.join(" "),
        }))
    }
}

/// Returns the routes, for the admin port.
pub(crate) fn router(login: Arc<DevLogin>) -> Router {
    Router::new()
        .route("/dev-login/authorize", get(authorize))
        .route("/dev-login/choose", post(choose))
        .route("/dev-login/token", post(token))
        .layer(middleware::from_fn_with_state(Arc::clone(&login), check_account))
        .layer(middleware::from_fn(check_host))
        .with_state(login)
}

/// Middleware that answers this machine's names only, so that no page can reach the login through a name of its own (DNS
/// rebinding).
async fn check_host(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = host.and_then(|host| host.parse::<Authority>().ok());
    match authority.is_some_and(|authority| address::is_this_machine(authority.host())) {
        true => next.run(request).await,
        false => StatusCode::FORBIDDEN.into_response(),
    }
}

/// Middleware that answers processes of the accepted accounts only: other accounts of this machine cannot read the development
/// issuer's key, and get no token of it here either.
async fn check_account(
    State(login): State<Arc<DevLogin>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let Err(whose) = login.accounts.admit(peer, login.admin) else { return next.run(request).await };
    tracing::warn!(
        %whose,
        "login in development refused: it is for the platform's own account, root and those in ASP_XDS_ACCOUNTS"
    );
    let why = "This login is for the account that started the platform. Take a token of `asp token`, or list the user id of your \
               account in ASP_XDS_ACCOUNTS of the platform.";
    (StatusCode::FORBIDDEN, refusal(why)).into_response()
}

async fn authorize(State(login): State<Arc<DevLogin>>, RawQuery(query): RawQuery) -> Response {
    let asked = parameters(query.unwrap_or_default().as_bytes());
    login.page(&asked).unwrap_or_else(refusal)
}

async fn choose(State(login): State<Arc<DevLogin>>, form: String) -> Response {
    let location = login.choose(&parameters(form.as_bytes())).map(|url| HeaderValue::from_str(&url));
    match location {
        Ok(Ok(location)) => (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response(),
        Ok(Err(_)) => refusal("The redirect is not a URL."),
        Err(why) => refusal(why),
    }
}

async fn token(State(login): State<Arc<DevLogin>>, form: String) -> Response {
    let (status, body) = match login.redeem(&parameters(form.as_bytes())) {
        Ok(token) => (StatusCode::OK, token),
        Err(why) => (StatusCode::BAD_REQUEST, json!({ "error": "invalid_grant", "error_description": why })),
    };
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body.to_string()).into_response()
}

fn parameters(encoded: &[u8]) -> Parameters {
    form_urlencoded::parse(encoded).into_owned().collect()
}

fn refusal(why: &str) -> Response {
    let body = format!("<h1>The login cannot continue</h1><p>{}</p>", escaped(why));
    html::page(StatusCode::BAD_REQUEST, "Development login", &body, "no-referrer")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::sync::CancellationToken;

    use super::*;

    const PUBLIC_URL: &str = "http://127.0.0.1:8080";
    /// RFC 7636 appendix B.
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    fn login() -> (DevLogin, tempfile::TempDir) {
        login_at(SocketAddr::from(([127, 0, 0, 1], 8081)))
    }

    fn login_at(admin: SocketAddr) -> (DevLogin, tempfile::TempDir) {
        crate::dev_issuer::install_crypto();
        let state = tempfile::tempdir().unwrap();
        let mut issuer = DevIssuer::load_or_create(state.path()).unwrap();
        issuer.set_audience(PUBLIC_URL).unwrap();
        (DevLogin::new(Arc::new(issuer), PUBLIC_URL, admin, Accounts::new(&[])), state)
    }

    fn asked(change: &[(&str, &str)]) -> Parameters {
        let mut asked = parameters(
            format!(
                "client_id={CLIENT}&redirect_uri={PUBLIC_URL}/demo/oauth/callback&state=a%26b&user=bob&groups=finance%20ops&\
                 code_challenge={CHALLENGE}&scope=notes:read"
            )
            .as_bytes(),
        );
        asked.extend(change.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        asked
    }

    fn code(login: &DevLogin) -> String {
        let location = Url::parse(&login.choose(&asked(&[])).unwrap()).unwrap();
        assert!(
            location.as_str().starts_with("http://127.0.0.1:8080/demo/oauth/callback?code="),
            "{location}"
        );
        let pairs: Parameters = location.query_pairs().into_owned().collect();
        assert_eq!(pairs["state"], "a&b");
        pairs["code"].clone()
    }

    fn redemption(code: &str) -> Parameters {
        let redirect = format!("{PUBLIC_URL}/demo/oauth/callback");
        let pairs = [("code", code), ("redirect_uri", &redirect), ("code_verifier", VERIFIER)];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn a_code_is_a_token_of_the_chosen_user_once() {
        let (login, _state) = login();
        let code = code(&login);
        let answer = login.redeem(&redemption(&code)).unwrap();
        let claims = answer["access_token"].as_str().unwrap().split('.').nth(1).unwrap().to_owned();
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
        assert_eq!((&claims["sub"], &claims["org"]), (&json!("bob"), &json!("acme")));
        assert_eq!(claims["groups"], json!(["finance", "ops"]));
        assert_eq!((&claims["aud"], &claims["scope"]), (&json!(PUBLIC_URL), &json!("notes:read")));
        assert_eq!(login.redeem(&redemption(&code)), Err("the code is not known"), "it is good once");
    }

    #[test]
    fn a_code_needs_its_verifier_and_its_redirect() {
        let (login, _state) = login();
        for (name, value) in
            [("code_verifier", "other"), ("redirect_uri", "http://127.0.0.1:8080/x/oauth/callback")]
        {
            let mut asked = redemption(&code(&login));
            asked.insert(name.to_owned(), value.to_owned());
            assert!(login.redeem(&asked).is_err(), "{name}");
        }
    }

    #[test]
    fn nobody_is_sent_elsewhere_and_nobody_else_is_chosen() {
        let (login, _state) = login();
        let long = "x".repeat(MAX_ASKED);
        for (name, value) in [
            ("redirect_uri", "http://evil.example/demo/oauth/callback"),
            ("redirect_uri", "http://127.0.0.1:8080@evil.example/demo/oauth/callback"),
            ("redirect_uri", "http://127.0.0.1:8080/demo/oauth/callback?x"),
            ("redirect_uri", "http://127.0.0.1:8080/../oauth/callback"),
            ("redirect_uri", "http://127.0.0.1:8080//oauth/callback"),
            ("client_id", "other"),
            ("user", "root"),
            ("scope", long.as_str()),
        ] {
            assert!(login.choose(&asked(&[(name, value)])).is_err(), "{name}");
        }
        assert!(login.page(&asked(&[("client_id", "other")])).is_err());
        assert_eq!(login.page(&asked(&[])).unwrap().status(), StatusCode::OK);
    }

    /// Returns the status line of the page, for a connection to `admin` if `is_known`, else for one whose owner the kernel
    /// does not name.
    async fn status_line(is_known: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let admin = if is_known { address } else { SocketAddr::new(address.ip(), 1) };
        let (login, _state) = login_at(admin);
        let stop = CancellationToken::new();
        let serving = asp_inbound::serve(listener, router(Arc::new(login)), stop.clone(), Duration::ZERO);
        let serving = tokio::spawn(serving);
        let query = format!("client_id={CLIENT}&redirect_uri={PUBLIC_URL}/demo/oauth/callback");
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "GET /dev-login/authorize?{query} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        stop.cancel();
        serving.await.unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn a_process_of_another_account_gets_no_page() {
        assert_eq!(status_line(true).await, "HTTP/1.1 200 OK");
        assert_eq!(status_line(false).await, "HTTP/1.1 403 Forbidden");
    }

    #[test]
    fn gateways_receive_its_endpoints() {
        let (login, _state) = login();
        let access = login.access();
        let endpoints = access.login.unwrap();
        assert_eq!(access.issuer, "dev");
        assert_eq!(endpoints.authorization_endpoint, "http://127.0.0.1:8081/dev-login/authorize");
        assert!(endpoints.token_endpoint.starts_with(login.origin()) && endpoints.without_resource);
    }
}
