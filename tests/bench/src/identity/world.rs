//! What runs while the rows of callers and services are measured: a stack, an issuer with introspection, token exchange and
//! client credentials, the service, and credentials of the operator.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use asp_e2e::http1;
use asp_e2e::stack::Options;
use asp_e2e::tool::Build;
use asp_e2e::wait;
use asp_edge::testkit::SigningKey;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::fixture::{self, ISSUER, SERVICE};
use super::{CALLERS, Shown};
use crate::admin::Admin;
use crate::backend;
use crate::framing::Message;
use crate::issuer::{Issuer, LIFE, ORG, now};
use crate::path::Path;
use crate::traffic::{Caller, Shape, Traffic};

/// As many as an org may have, less some room.
pub(super) const MACHINE_KEYS: usize = 90;

/// No opaque token is used twice in a process.
static NEXT_OPAQUE: AtomicU64 = AtomicU64::new(1_000_000);

pub(super) struct World {
    pub path: Path,
    issuer: Issuer,
    keys: Vec<String>,
    _secrets: TempDir,
}

impl World {
    pub(super) async fn start() -> Result<World> {
        let others = backend::start_with(answer)?;
        let origin = format!("http://{others}");
        let secrets = tempfile::tempdir()?;
        let file = secrets.path().join("credentials.json");
        std::fs::write(&file, credentials(&secrets, &origin)?.to_string())?;
        let mut options = Options::of(Build::own()?);
        options.environment = vec![
            ("ASP_ISSUER_ORIGINS", origin.clone()),
            ("ASP_CREDENTIALS", file.display().to_string()),
            ("ASP_UPSTREAMS", format!("{SERVICE}={origin}")),
        ];
        let path = Path::start_with(options).await.context("start the stack")?;
        let mut world = World {
            path,
            issuer: Issuer::new(ISSUER, SigningKey::es256()),
            keys: Vec::new(),
            _secrets: secrets,
        };
        world.set_up(&origin).await?;
        Ok(world)
    }

    /// Issuer, servers and machine keys.
    async fn set_up(&mut self, origin: &str) -> Result<()> {
        let admin = Admin::of(&self.path.stack).await?;
        let issuer = json!({
            "iss": self.issuer.iss(), "jwks": self.issuer.jwks(), "algs": ["ES256"], "orgs": [ORG], "audiences": [ISSUER],
            "introspection":
                {"credential": "gateway", "url": format!("{origin}/introspect"), "audiences": [ISSUER]},
            "exchange":
                {"credential": "gateway", "url": format!("{origin}/token"), "audiences": {"service": [origin]}},
        });
        admin.put(&format!("/api/issuers/clients/{ISSUER}"), &issuer).await?;
        for (name, files) in fixture::servers() {
            admin.put(&format!("/api/registry/servers/{name}"), &files).await?;
        }
        for number in 0..MACHINE_KEYS {
            let machine = json!({"machine": format!("machine-{number}"), "ttlSeconds": LIFE});
            let path = format!("/api/machines/orgs/{ORG}/keys");
            let made = admin.post(&path, &machine).await?.json()?;
            let key = made.get("key").and_then(Value::as_str).context("the key of a machine")?;
            self.keys.push(key.to_owned());
        }
        self.until_in_force().await
    }

    /// Until the edge and the gateway behind it let in the last of what was written.
    async fn until_in_force(&self) -> Result<()> {
        for (_, server, shown) in CALLERS {
            let last = self.callers(shown, MACHINE_KEYS)?.pop().context("a caller")?;
            let traffic = Traffic {
                shape: Shape::Modern,
                target: format!("/{server}/mcp"),
                tool: fixture::ECHO,
                authority: self.path.authority(),
                callers: vec![last],
            };
            wait::until("what was written is in force", wait::START, || async {
                let mut bytes = Vec::new();
                traffic.write(0, &mut bytes);
                let answer = http1::exchange(self.path.edge.address(), &bytes, false).await.ok()?;
                (answer.status == 200).then_some(())
            })
            .await
            .with_context(|| format!("server {server}"))?;
        }
        Ok(())
    }

    /// At most that many callers whom nobody has seen; machines have the keys that they have.
    pub(super) fn callers(&self, shown: Shown, count: usize) -> Result<Vec<Caller>> {
        let tokens: Vec<String> = match shown {
            Shown::Signed => (0..count).map(|number| self.issuer.mint(ISSUER, &user(number))).collect(),
            Shown::Opaque => {
                let numbers = (0..count).map(|_| NEXT_OPAQUE.fetch_add(1, Ordering::Relaxed));
                numbers.map(|number| format!("opaque-{number}")).collect()
            }
            Shown::MachineKey => self.keys.iter().take(count).cloned().collect(),
        };
        Ok(tokens.into_iter().map(|token| Caller { token, session: String::new() }).collect())
    }
}

fn user(number: usize) -> String {
    format!("user-{:02}", number % 16)
}

/// The operator's credentials, each secret in a file of its own.
fn credentials(secrets: &TempDir, origin: &str) -> Result<Value> {
    let file = secrets.path().join("secret");
    std::fs::write(&file, "a-secret-of-the-benchmark")?;
    let basic = json!({"user": "gateway", "passwordFile": file});
    let client =
        json!({"tokenUrl": format!("{origin}/token"), "clientId": "gateway", "clientSecretFile": file});
    Ok(json!({
        "gateway": {"origin": origin, "basic": basic},
        "bearer": {"origin": origin, "primitives": ["behind/*"], "bearerFile": file},
        "basic": {"origin": origin, "primitives": ["behind/*"], "basic": basic},
        "header": {"origin": origin, "primitives": ["behind/*"], "header": {"name": "x-api-key", "valueFile": file}},
        "client": {"origin": origin, "primitives": ["behind/*"], "oauthClient": client},
    }))
}

/// The issuer's endpoints, and for every other path the service.
fn answer(request: &Message<'_>, out: &mut Vec<u8>) {
    let asked = |path: &[u8]| request.head.get(b"POST ".len()..).is_some_and(|rest| rest.starts_with(path));
    let said = if asked(b"/introspect ") {
        // The token is the first of the form; its number stands for the user.
        let form = String::from_utf8_lossy(request.body);
        let digits: String = form.chars().filter(char::is_ascii_digit).collect();
        let issued = now();
        json!({
            "active": true, "iss": format!("asp-{ISSUER}"), "sub": user(digits.parse().unwrap_or(0)), "aud": ISSUER,
            "org": ORG, "client_id": "bench", "iat": issued, "exp": issued + LIFE, "token_type": "Bearer",
        })
    } else if asked(b"/token ") {
        json!({
            "access_token": "a-token-for-the-service", "token_type": "Bearer", "expires_in": LIFE,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        })
    } else {
        json!({"answered": true})
    };
    out.extend_from_slice(&backend::response(&said));
}
