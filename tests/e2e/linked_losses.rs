//! Callers lose their right amid calls with linked accounts: the calls end with the reason, the next ones are refused, and of a
//! user who is revoked or blocked the provider is asked to revoke the tokens. The provider is the tests' own, and redirects at
//! once.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use asp_e2e::browser::{Browser, Person};
use asp_e2e::http1::{self, Request};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait;
use asp_e2e::wait::ErrorDetails;
use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::message::{modern, rest, revocation};
use crate::trial::{Shared, trials};

const REASON: &str = "a sample";

trials! { linked_losses:
    callers_lose_their_right_amid_calls_with_linked_accounts,
}

/// Loss of the right to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Token,
    Denial,
    Block,
    /// The last one of a user: tokens that are issued within seconds after it are revoked, too.
    User,
}

/// A provider of accounts, and the service behind it, whose answers never come.
struct Hub {
    origin: String,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    /// Address to which the provider sends users back.
    callback: Mutex<String>,
    counts: Mutex<Counts>,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    /// Calls at the service.
    calls: usize,
    /// Grants of tokens.
    grants: usize,
    /// Forms at the revocation endpoint.
    revoked: Vec<String>,
}

impl Hub {
    async fn start() -> Result<Hub> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let origin = format!("http://{}", listener.local_addr()?);
        let state = Arc::<State>::default();
        let serving = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&serving);
                let service = service_fn(move |request| serve(Arc::clone(&state), request));
                tokio::spawn(async move {
                    let builder = Builder::new(TokioExecutor::new());
                    // A call that ends breaks its connection.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Hub { origin, state, task })
    }

    fn counts(&self) -> Counts {
        self.state.counts.lock().clone()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    state: Arc<State>,
    request: http::Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::new()));
    match path.as_str() {
        "/authorize" => {
            let given = query.split('&').find_map(|pair| pair.strip_prefix("state=")).unwrap_or_default();
            let to = format!("{}?code=c0de&state={given}", state.callback.lock());
            *response.status_mut() = StatusCode::FOUND;
            response.headers_mut().insert(header::LOCATION, to.parse().expect("a location"));
        }
        "/token" => {
            let mut counts = state.counts.lock();
            counts.grants += 1;
            let number = counts.grants;
            let tokens = json!({
                "access_token": format!("at-{number}"), "refresh_token": format!("rt-{number}"),
                "token_type": "bearer", "expires_in": 3600,
            });
            *response.body_mut() = Full::new(tokens.to_string().into());
            let json = header::HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
        }
        "/revoke" => state.counts.lock().revoked.push(String::from_utf8_lossy(&body).into_owned()),
        _ => {
            state.counts.lock().calls += 1;
            std::future::pending::<()>().await;
        }
    }
    Ok(response)
}

struct World {
    stack: Stack,
    hub: Hub,
    root: String,
}

async fn callers_lose_their_right_amid_calls_with_linked_accounts(_: &Shared) -> Result<()> {
    let world = World::start().await?;
    for user in ["alice", "bob"] {
        for loss in [Loss::Token, Loss::Denial, Loss::Block, Loss::User] {
            world.sample(user, loss).await.with_context(|| format!("{loss:?} of {user}"))?;
        }
    }
    world.stack.stop(&[]).await
}

impl World {
    async fn start() -> Result<World> {
        let hub = Hub::start().await?;
        let service = hub.origin.trim_start_matches("http://");
        let environment = vec![
            ("ASP_ISSUER_ORIGINS", hub.origin.clone()),
            ("ASP_UPSTREAMS", format!("crm.internal=http://{service}")),
        ];
        let stack = Stack::start(Options { environment, ..Options::repository()? }).await?;
        *hub.state.callback.lock() = format!("http://{}/account/callback", stack.edge());
        let root = stack.token(&["--admin", "--user", "root"]).await?;
        let world = World { stack, hub, root };
        world.send("PUT", "/api/link-providers/hub", &world.provider()).await?;
        world.send("PUT", "/api/registry/servers/crm", &server()).await?;
        Ok(world)
    }

    fn provider(&self) -> Value {
        let origin = &self.hub.origin;
        json!({ "clientSecret": "hubs-secret", "document": {
            "title": "Hub", "clientId": "asp", "for": ["crm/*"], "origins": [origin],
            "authorizationEndpoint": format!("{origin}/authorize"), "tokenEndpoint": format!("{origin}/token"),
            "revocation": { "endpoint": format!("{origin}/revoke") },
        }})
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Result<()> {
        let answer = http1::send(self.stack.admin(), &rest(method, path, &self.root, body)).await?;
        ensure!(answer.status < 300, "{method} {path}: {} {}", answer.status, answer.text());
        Ok(())
    }

    /// A call with a linked account runs, its caller loses the right to it, and regains what the loss left.
    async fn sample(&self, user: &str, loss: Loss) -> Result<()> {
        let token = self.stack.token(&["--org", "acme", "--user", user]).await?;
        let call = call(&token);
        let calling = self.running(&call, user).await?;
        let grant = self.hub.counts().grants;
        self.lose(loss, user, &token).await?;
        let ended = calling.await??;
        ensure!(ended["error"]["data"]["reason"] == loss.reason(), "the running call: {ended}");
        for place in [self.stack.edge(), self.stack.gateway()] {
            wait::until("the next call is refused", wait::CONVERGE, || async {
                let answer = http1::send(place, &call).await.ok()?;
                (answer.reason().as_deref() == Some(loss.reason())).then_some(())
            })
            .await?;
        }
        match loss {
            Loss::Denial => {
                self.send("DELETE", "/api/policy/orgs/acme/bindings", &Value::Null).await?;
            }
            Loss::Block => {
                self.revoked(grant).await?;
                let path = format!("/api/blocks?type=user&org=acme&id={user}");
                self.send("DELETE", &path, &Value::Null).await?;
            }
            Loss::User => self.revoked(grant).await?,
            Loss::Token => {}
        }
        Ok(())
    }

    async fn lose(&self, loss: Loss, user: &str, token: &str) -> Result<()> {
        let of_user = json!({"type": "user", "org": "acme", "id": user, "reason": REASON});
        match loss {
            Loss::Token => {
                let answer = http1::send(self.stack.admin(), &revocation(&self.root, token)).await?;
                ensure!(answer.status < 300, "{}", answer.text());
                Ok(())
            }
            Loss::User => self.send("POST", "/api/revocations", &of_user).await,
            Loss::Block => self.send("POST", "/api/blocks", &of_user).await,
            Loss::Denial => {
                let deny = json!({
                    "target": {"type": "user", "idOrPattern": user},
                    "primitive": {"name": "crm.wait", "protocol": "*"},
                    "allowed": false,
                });
                self.send("PUT", "/api/policy/orgs/acme/bindings?force=true", &deny).await
            }
        }
    }

    /// Starts a call and waits until the service has it; links the account first, where the answer asks for that.
    async fn running(&self, call: &Request, user: &str) -> Result<JoinHandle<Result<Value>>> {
        let began = tokio::time::Instant::now();
        loop {
            let before = self.hub.counts().calls;
            let edge = self.stack.edge();
            let request = call.clone();
            let calling = tokio::spawn(async move { http1::send(edge, &request).await?.json() });
            wait::until("the service has the call, or it ended", wait::CONVERGE, || async {
                (self.hub.counts().calls > before || calling.is_finished()).then_some(())
            })
            .await?;
            if !calling.is_finished() {
                return Ok(calling);
            }
            let answer = calling.await??;
            ensure!(began.elapsed() < wait::START, "the call does not run: {answer}");
            // The server and what a loss before has left may not be in force yet.
            let Some(page) = self.page_in(&answer) else { continue };
            self.link(&page, user).await?;
        }
    }

    /// Address of the linking page in an answer.
    fn page_in(&self, answer: &Value) -> Option<String> {
        let said = answer.to_string();
        let start = format!("http://{}/crm/oauth/link?ticket=", self.stack.edge());
        let sealed = said.split(&start).nth(1)?;
        let end = sealed.find(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c))?;
        Some(format!("{start}{}", sealed.get(..end)?))
    }

    /// Signs in at the development issuer and links the account.
    async fn link(&self, page: &str, user: &str) -> Result<()> {
        let mut browser = Browser::default();
        browser.visit_all(page, &Person { user, password: "", allows: true }).await?;
        let last = browser.seen.last().context("a page")?;
        ensure!(last.contains("Your Hub account is linked"), "{last}");
        Ok(())
    }

    /// Waits until the provider is asked to revoke the tokens of a grant.
    async fn revoked(&self, grant: usize) -> Result<()> {
        let token = format!("token=rt-{grant}");
        let is_its = |form: &String| form.split('&').any(|pair| pair == token);
        wait::until("the tokens are revoked at the provider", wait::CONVERGE, || async {
            self.hub.counts().revoked.iter().any(is_its).then_some(())
        })
        .await
        .with_details(|| format!("{:?}", self.hub.counts()))
    }
}

impl Loss {
    fn reason(self) -> &'static str {
        match self {
            Loss::Token | Loss::User => "token_revoked",
            Loss::Block => "blocked",
            Loss::Denial => "unknown_primitive",
        }
    }
}

fn call(token: &str) -> Request {
    let params = json!({"name": "wait", "arguments": {}});
    let mut call = modern(token, "tools/call", params, &[("mcp-name", "wait")]);
    call.target = "/crm/mcp".into();
    call
}

/// A server with one tool, whose service is behind a linked account and does not answer.
fn server() -> Value {
    let file = |name: &str, text: &str| json!({ "path": format!("crm/{name}.yaml"), "text": text });
    let server = "apiVersion: asp/v1\nname: crm\ndescription: Customers.\nprotocols: [mcp]\nsessions: both\n\
         defaultExposure: allow\nauth: {schemes: [jwt], issuers: [dev]}\nprimitives: [{ref: crm/crm.wait}]\n";
    let tool = "id: crm.wait\nname: wait\ntype: tool\nversion: 1.0.0\nowner: crm@acme.example\nsummary: Never answers.\n\
         mutation: read_only\nexposure: {mcp: {tool: {name: wait}}}\nsecurity: {riskClass: low}\n\
         primitiveSchema: {input_schema: {type: object}}\n\
         runtime: {mode: proxy, http: {url: \"http://crm.internal/wait\"}, auth: {linked: hub}}\n";
    json!({ "files": [file("server", server), file("wait", tool)] })
}
