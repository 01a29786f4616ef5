//! A company's own login: a real Keycloak where clients cannot register, official clients that know nothing of it, a
//! person who is asked, and tokens that end.

mod realm;

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use asp_e2e::browser::{Browser, Person};
use asp_e2e::keycloak::Keycloak;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::{http1, tool, wait};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::trial::Shared;

/// Hang guard of a client that logs in twice and waits for its token to end.
const CLIENT: Duration = Duration::from_secs(150);
/// Where clients are sent back to; nobody listens there, the test reads the address.
const REDIRECT: &str = "http://127.0.0.1:9/";
const ALICE: Person<'static> = Person { user: "alice", password: "wonderland", allows: true };

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![
        // One company for all of it: its Keycloak takes longer to start than the rest.
        shared.trial(
            "login::a_companys_clients_log_in_its_opaque_tokens_are_asked_about_and_its_keys_change",
            |_| whole(),
        ),
    ]
}

/// A stack whose server `notes` takes the tokens of a Keycloak that both were told of while they ran.
pub(crate) struct Company {
    pub(crate) keycloak: Keycloak,
    pub(crate) stack: Stack,
    admin: String,
}

impl Company {
    async fn start() -> Result<Company> {
        let keycloak = Keycloak::start(&realm::acme()).await?;
        let secrets = tempfile::tempdir()?;
        let secret = secrets.path().join("secret");
        std::fs::write(&secret, realm::GATEWAY_SECRET)?;
        let credentials = secrets.path().join("credentials.json");
        let basic = json!({ "user": "gateway", "passwordFile": secret });
        let file = json!({ "kc": { "origin": keycloak.origin(), "basic": basic } });
        std::fs::write(&credentials, file.to_string())?;
        let mut options = Options::repository()?;
        options.environment = vec![
            ("ASP_ISSUER_ORIGINS", keycloak.origin()),
            ("ASP_CREDENTIALS", credentials.display().to_string()),
        ];
        let stack = Stack::start(options).await?;
        let admin = stack.token(&["--admin", "--user", "ops"]).await?;
        let company = Company { keycloak, stack, admin };
        company.put("/api/issuers/clients/kc", &company.issuer()).await?;
        company.put("/api/registry/servers/notes", &realm::notes()).await?;
        company.register().await?;
        company.serves().await?;
        Ok(company)
    }

    /// What the platform is told of the issuer.
    fn issuer(&self) -> Value {
        json!({
            "iss": self.keycloak.issuer(), "orgs": ["acme"], "typ": ["JWT"], "audiences": ["asp"],
            "claims": { "user": "preferred_username", "groups": "/realm_access/roles" },
            "defaults": { "org": "acme" },
            "login": { "clientId": "mcp" },
            "introspection": { "credential": "kc", "audiences": ["asp"] },
        })
    }

    /// Registers the one client, whose redirect has the edge's port in it.
    async fn register(&self) -> Result<()> {
        let callback = format!("http://{}/notes/oauth/callback", self.stack.edge());
        let client = realm::client(&callback);
        self.keycloak.ask("POST", "/admin/realms/acme/clients", Some(&client)).await.map(drop)
    }

    /// Waits until the server takes a token of the issuer.
    async fn serves(&self) -> Result<()> {
        let token = self.token("").await?;
        wait::until("the server takes the issuer's tokens", wait::CONVERGE, || async {
            (self.status(&token).await.ok()? == 200).then_some(())
        })
        .await
    }

    async fn token(&self, more: &str) -> Result<String> {
        let form = format!("grant_type=password&client_id=direct&username=alice&password=wonderland{more}");
        self.keycloak.token(&form).await
    }

    /// What a list of tools is answered with.
    async fn status(&self, token: &str) -> Result<u16> {
        Ok(self.list(token).await?.status)
    }

    async fn list(&self, token: &str) -> Result<http1::Response> {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/list"),
        ];
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "e2e", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta } });
        http1::post(self.stack.edge(), "/notes/mcp", &headers, &body.to_string()).await
    }

    async fn put(&self, path: &str, body: &Value) -> Result<Value> {
        let request = http1::Request {
            method: "PUT".into(),
            target: path.into(),
            headers: vec![
                ("authorization".into(), format!("Bearer {}", self.admin).into_bytes()),
                ("content-type".into(), b"application/json".to_vec()),
            ],
            body: body.to_string().into_bytes(),
        };
        let answer = http1::send(self.stack.admin(), &request).await?;
        if answer.status != 200 {
            bail!("PUT {path}: {} {}", answer.status, answer.text());
        }
        answer.json()
    }

    async fn stop(mut self) -> Result<()> {
        self.stack.stop(&[]).await?;
        self.keycloak.process.stop().await.map(drop)
    }

    /// Runs a client; whenever it wants its user to log in, alice does. Returns what it printed last.
    async fn client(&self, mut command: Command) -> Result<Value> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let mut input = child.stdin.take().context("its input")?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let mut errors = child.stderr.take().context("its errors")?;
        let work = async {
            let mut last = String::new();
            // One person, one browser: the second login of a client finds the first one's session.
            let mut browser = Browser::default();
            while let Some(line) = lines.next_line().await? {
                match line.strip_prefix("LOGIN ") {
                    Some(url) => {
                        let back = browser.visit(url, &ALICE, REDIRECT).await?;
                        input.write_all(format!("{back}\n").as_bytes()).await?;
                    }
                    None => last = line,
                }
            }
            Ok::<_, anyhow::Error>(last)
        };
        let worked = tokio::time::timeout(CLIENT, work).await.context("the client did not end")?;
        let mut said = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut errors, &mut said).await?;
        let last = worked.with_context(|| said.clone())?;
        serde_json::from_str(&last).with_context(|| format!("{last}\n{said}"))
    }
}

async fn whole() -> Result<()> {
    let mut company = Company::start().await?;
    emergency(&company).await.context("an emergency token")?;
    admins(&company).await.context("an admin logs in")?;
    clients(&company).await.context("clients log in")?;
    opaque(&company).await.context("opaque tokens")?;
    keys(&mut company).await.context("keys change")?;
    company.stop().await
}

/// Official clients that know nothing of the company's login, where nobody may register.
async fn clients(company: &Company) -> Result<()> {
    let url = company.stack.mcp_url("notes");
    let python = |path: std::path::PathBuf, folder: &str, mode: &[&str]| -> Result<Command> {
        let mut command = Command::new(path);
        command.arg(tool::root()?.join("tests/clients").join(folder).join("login.py")).arg(&url).args(mode);
        Ok(command)
    };
    let node = |folder: &str, mode: &[&str]| -> Result<Command> {
        let mut command = Command::new(tool::node()?);
        let program = tool::clients()?.join(folder).join("login.mjs");
        command.arg("--preserve-symlinks-main").arg(program).arg(&url).args(mode);
        Ok(command)
    };
    let runs = [
        ("python 2, modern", python(tool::python()?, "python", &["2026-07-28"])?),
        ("python 2, legacy", python(tool::python()?, "python", &["legacy"])?),
        ("python 1", python(tool::python_1()?, "python-1", &[])?),
        ("node 2, modern", node("node-v2", &["2026-07-28"])?),
        ("node 2, legacy", node("node-v2", &["legacy"])?),
        ("node 1", node("node-v1", &[])?),
    ];
    let all = futures::future::join_all(
        runs.map(|(name, command)| async move { (name, company.client(command).await) }),
    );
    for (name, outcome) in all.await {
        let said = outcome.with_context(|| name)?;
        assert_eq!(said["results"].as_array().map(Vec::len), Some(3), "{name}: {said}");
        assert_eq!(said["logins"], 2, "{name}: once, and once for the scope: {said}");
        assert!(said["refreshed"].as_u64() >= Some(1), "{name}: {said}");
        assert!(said["scope"].as_str().is_some_and(|scope| scope.contains("notes:write")), "{name}: {said}");
    }
    Ok(())
}

/// Keys that change, and an issuer that goes away and comes back with others.
async fn keys(company: &mut Company) -> Result<()> {
    let old = company.token("").await?;
    company.keycloak.rotate("second", 200).await?;
    let new = company.token("").await?;
    assert_ne!(kid(&old), kid(&new), "it signs with the new key");
    // What was fetched moments ago is not fetched again at once; then nothing valid is refused.
    wait::until("the new key is known", Duration::from_secs(60), || async {
        (company.status(&new).await.ok()? == 200).then_some(())
    })
    .await?;
    assert_eq!(company.status(&old).await?, 200, "the old key is published still");
    let port = company.keycloak.address.port();
    company.keycloak.process.stop().await?;
    assert_eq!(company.status(&new).await?, 200, "known keys go on without their issuer");
    assert_eq!(company.status(&forged(&new)).await?, 401, "unknown ones are refused");
    company.keycloak = Keycloak::start_at(port, &realm::acme()).await?;
    let fresh = company.token("").await?;
    wait::until("the returned issuer's new keys are known", Duration::from_secs(90), || async {
        (company.status(&fresh).await.ok()? == 200).then_some(())
    })
    .await?;
    assert_eq!(company.status(&new).await?, 401, "a key that is published no more signs nothing");
    Ok(())
}

fn kid(token: &str) -> String {
    header(token)["kid"].as_str().unwrap_or_default().to_owned()
}

fn header(token: &str) -> Value {
    let decoded = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap_or_default());
    serde_json::from_slice(&decoded.unwrap_or_default()).unwrap_or_default()
}

/// The token under another key's name.
fn forged(token: &str) -> String {
    let mut header = header(token);
    header["kid"] = json!("nobodys");
    let rest = token.split_once('.').map_or("", |(_, rest)| rest);
    format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header.to_string()))
}

/// The issuer's word about tokens, and the platform's.
async fn opaque(company: &Company) -> Result<()> {
    company.put("/api/registry/servers/notes?force=true", &realm::notes_with("[opaque]")).await?;
    let token = company.token("").await?;
    wait::until("the server asks about tokens", wait::CONVERGE, || async {
        (company.status("nobodys").await.ok()? == 401).then_some(())
    })
    .await?;
    let answer = company.list(&token).await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let refused = company.list("not-a-token").await?;
    assert_eq!(refused.status, 401);
    assert!(
        refused.header("www-authenticate").is_some_and(|text| text.contains("resource_metadata")),
        "{refused:?}"
    );
    // Logged out at the issuer: within half a minute.
    let users = company.keycloak.ask("GET", "/admin/realms/acme/users?username=alice", None).await?;
    let id = users[0]["id"].as_str().context("alice's id")?.to_owned();
    company.keycloak.ask("POST", &format!("/admin/realms/acme/users/{id}/logout"), None).await?;
    wait::until("the issuer's word counts", Duration::from_secs(60), || async {
        (company.status(&token).await.ok()? == 401).then_some(())
    })
    .await?;
    // Revoked here: at once.
    let token = company.token("").await?;
    assert_eq!(company.status(&token).await?, 200);
    let revoke = json!({ "type": "user", "org": "acme", "id": "alice" });
    let bearer = format!("Bearer {}", company.admin);
    let headers = [("authorization", bearer.as_str())];
    let revoked =
        http1::post(company.stack.admin(), "/api/revocations", &headers, &revoke.to_string()).await?;
    assert_eq!(revoked.status, 201, "{}", revoked.text());
    wait::until("the platform's word counts", wait::CONVERGE, || async {
        (company.status(&token).await.ok()? == 401).then_some(())
    })
    .await?;
    let schemes = company.put("/api/registry/servers/notes?force=true", &realm::notes()).await?;
    assert_eq!(schemes["changed"], true);
    // Tokens of a later second are not revoked.
    wait::until("alice may come again", wait::CONVERGE, || async {
        let token = company.token("").await.ok()?;
        (company.status(&token).await.ok()? == 200).then_some(())
    })
    .await
}

/// An admin by the company's own login, who has the role that his group gives: his team's server, and no other.
async fn admins(company: &Company) -> Result<()> {
    let issuer = json!({
        "iss": company.keycloak.issuer(), "typ": ["JWT"], "audiences": ["asp"], "orgs": ["*"],
        "claims": { "user": "preferred_username", "groups": "/realm_access/roles" },
        "roles": { "staff": "server:notes" }, "login": { "clientId": "cli" },
    });
    company.put("/api/issuers/admins/kc", &issuer).await?;
    let home = tempfile::tempdir()?;
    let url = format!("http://{}", company.stack.admin());
    let asp = |arguments: &[&str]| -> Result<Command> {
        let mut command = Command::new(tool::asp()?);
        command.args(arguments).env("ASP_ADMIN_URL", &url).env("HOME", home.path());
        command.env_remove("ASP_ADMIN_TOKEN").env_remove("XDG_CONFIG_HOME").kill_on_drop(true);
        Ok(command)
    };
    let admin = company.stack.admin();
    wait::until("admins can log in", wait::CONVERGE, || async move {
        let answer = http1::get(admin, "/api/login", &[]).await.ok()?;
        answer.text().contains("deviceAuthorizationEndpoint").then_some(())
    })
    .await?;
    let mut login = asp(&["login"])?;
    let mut child = login.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let line = lines.next_line().await?.context("where to log in")?;
    let page = line.strip_prefix("open ").with_context(|| line.clone())?;
    Browser::default().visit_all(page, &ALICE).await?;
    let ended = tokio::time::timeout(CLIENT, child.wait()).await.context("asp login did not end")??;
    assert!(ended.success(), "asp login: {ended}");
    let folder = tempfile::tempdir()?;
    for file in realm::notes()["files"].as_array().context("files")? {
        let path = folder.path().join(file["path"].as_str().unwrap_or_default());
        std::fs::create_dir_all(path.parent().context("its folder")?)?;
        std::fs::write(path, file["text"].as_str().unwrap_or_default())?;
    }
    let own = asp(&["apply"])?.arg(folder.path()).output().await?;
    assert!(own.status.success(), "its own: {}", String::from_utf8_lossy(&own.stderr));
    let foreign = asp(&["apply"])?.arg(tool::root()?.join("primitives")).output().await?;
    assert!(!foreign.status.success(), "others': {}", String::from_utf8_lossy(&foreign.stdout));
    assert!(String::from_utf8_lossy(&foreign.stderr).contains("404 not_found"), "{foreign:?}");
    Ok(())
}

/// The way in while the login is away: minted offline, audited before it opens anything.
async fn emergency(company: &Company) -> Result<()> {
    let arguments = ["--break-glass", "--user", "ops", "--reason", "the login is down"];
    let token = company.stack.token(&arguments).await?;
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let audit = http1::get(company.stack.admin(), "/api/audit", &headers).await?;
    assert_eq!(audit.status, 200, "{}", audit.text());
    let rows = audit.json()?;
    let row = rows.as_array().and_then(|rows| rows.iter().find(|row| row["action"] == "break_glass"));
    let row = row.context("its use is audited")?;
    assert_eq!(
        (&row["actor"], &row["detail"]),
        (&json!("break-glass:ops@platform"), &json!("the login is down"))
    );
    Ok(())
}
