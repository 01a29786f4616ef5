//! A real Keycloak: a company's login, with one realm that a test describes.
//!
//! Keeps true: it listens on loopback only, and keeps nothing.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::port::Reserved;
use crate::process::Process;
use crate::wait::ErrorDetails;
use crate::{http1, tool, wait};

/// The realm's name.
pub const REALM: &str = "acme";
/// Administrator of the server, and of nothing else.
const ADMIN: (&str, &str) = ("admin", "admin");
/// Hang guard: it takes 12 s on two idle cores.
const START: Duration = Duration::from_secs(180);
/// What it says when it listens.
const LISTENS: &str = "Listening on: http://";

/// A running server.
pub struct Keycloak {
    pub process: Process,
    pub address: SocketAddr,
}

/// It lives for seconds, in which a better compiler does not pay back; the addresses are of a cluster that it is not in.
const OPTIONS: &str =
    "-XX:TieredStopAtLevel=1 -Djgroups.bind.address=127.0.0.1 -Djgroups.bind_addr=127.0.0.1";

impl Keycloak {
    /// Starts it with a realm (Keycloak's own representation, whose `realm` is [`REALM`]).
    pub async fn start(realm: &Value) -> Result<Keycloak> {
        Keycloak::start_at(0, realm).await
    }

    /// The same at a port that it had before.
    pub async fn start_at(port: u16, realm: &Value) -> Result<Keycloak> {
        let _kept = (port != 0).then(|| Reserved::again(port)).transpose()?;
        let mut command = Command::new(tool::keycloak()?.join("bin/kc.sh"));
        command
            .args(["start", "--optimized", "--http-enabled=true", "--hostname-strict=false"])
            .args(["--http-host=127.0.0.1", "--http-management-port=0"])
            .arg(format!("--http-port={port}"))
            .env("KC_BOOTSTRAP_ADMIN_USERNAME", ADMIN.0)
            .env("KC_BOOTSTRAP_ADMIN_PASSWORD", ADMIN.1)
            .env("JAVA_OPTS_KC_HEAP", "-Xms64m -Xmx512m")
            .process_group(0)
            .env("JAVA_OPTS_APPEND", OPTIONS);
        let process = Process::start("keycloak", command)?;
        let said = wait::until("Keycloak listens", START, || async {
            let line = process.log().lines().into_iter().find(|line| line.contains(LISTENS))?;
            line.split(LISTENS)
                .nth(1)?
                .split(['.', ' '])
                .collect::<Vec<_>>()
                .get(..4)
                .map(|parts| parts.join("."))
        });
        let address = said.await.with_details(|| process.tail())?;
        let keycloak = Keycloak { process, address: address.parse().with_context(|| address.clone())? };
        // It listens before its administrator is there.
        let ready = wait::until("Keycloak's administrator is there", START, || async {
            keycloak.administrator().await.ok()
        });
        ready.await.with_details(|| keycloak.process.tail())?;
        keycloak.ask("POST", "/admin/realms", Some(realm)).await?;
        Ok(keycloak)
    }

    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The realm's `iss`.
    pub fn issuer(&self) -> String {
        self.issuer_of(REALM)
    }

    /// That of another realm.
    pub fn issuer_of(&self, realm: &str) -> String {
        format!("{}/realms/{realm}", self.origin())
    }

    async fn administrator(&self) -> Result<String> {
        let form =
            format!("grant_type=password&client_id=admin-cli&username={}&password={}", ADMIN.0, ADMIN.1);
        let answer = self.form("/realms/master/protocol/openid-connect/token", &form).await?;
        text(&answer, "access_token")
    }

    /// A token of the realm for a form of the token endpoint.
    pub async fn token(&self, form: &str) -> Result<String> {
        self.token_of(REALM, form).await
    }

    /// One of another realm.
    pub async fn token_of(&self, realm: &str, form: &str) -> Result<String> {
        text(&self.tokens(realm, form).await?, "access_token")
    }

    /// All that the token endpoint answers.
    pub async fn tokens(&self, realm: &str, form: &str) -> Result<Value> {
        self.form(&format!("/realms/{realm}/protocol/openid-connect/token"), form).await
    }

    /// Changes an attribute of a client.
    pub async fn change_client(&self, client: &str, attribute: &str, value: &str) -> Result<()> {
        let clients = format!("/admin/realms/{REALM}/clients");
        let found = self.ask("GET", &format!("{clients}?clientId={client}"), None).await?;
        let id = text(found.get(0).unwrap_or(&found), "id")?;
        let attributes = json!({ "clientId": client, "attributes": { attribute: value } });
        self.ask("PUT", &format!("{clients}/{id}"), Some(&attributes)).await.map(drop)
    }

    /// Gives a user a role of the realm.
    pub async fn grant(&self, realm: &str, user: &str, role: &str) -> Result<()> {
        let realm = format!("/admin/realms/{realm}");
        let users = self.ask("GET", &format!("{realm}/users?exact=true&username={user}"), None).await?;
        let id = text(users.get(0).unwrap_or(&users), "id")?;
        let role = self.ask("GET", &format!("{realm}/roles/{role}"), None).await?;
        let path = format!("{realm}/users/{id}/role-mappings/realm");
        self.ask("POST", &path, Some(&json!([role]))).await.map(drop)
    }

    async fn form(&self, path: &str, form: &str) -> Result<Value> {
        let kind = [("content-type", "application/x-www-form-urlencoded")];
        let answer = http1::post(self.address, path, &kind, form).await?;
        if answer.status != 200 {
            bail!("{path}: {} {}", answer.status, answer.text());
        }
        answer.json()
    }

    /// Asks the admin API; the answer's body, `null` where it has none.
    pub async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let bearer = format!("Bearer {}", self.administrator().await?);
        let request = http1::Request {
            method: method.into(),
            target: path.into(),
            headers: vec![
                ("authorization".into(), bearer.into_bytes()),
                ("content-type".into(), b"application/json".to_vec()),
            ],
            body: body.map(|body| body.to_string().into_bytes()).unwrap_or_default(),
        };
        let answer = http1::send(self.address, &request).await?;
        if answer.status >= 300 {
            bail!("{method} {path}: {} {}", answer.status, answer.text());
        }
        Ok(answer.json().unwrap_or(Value::Null))
    }

    /// Signs with a new key from now on; the old one is published still. Returns the old one's component.
    pub async fn rotate(&self, name: &str, priority: u32) -> Result<()> {
        let realm = self.ask("GET", &format!("/admin/realms/{REALM}"), None).await?;
        let component = json!({
            "name": name, "providerId": "rsa-generated", "providerType": "org.keycloak.keys.KeyProvider",
            "parentId": realm.get("id"),
            "config": { "priority": [priority.to_string()], "keySize": ["2048"], "algorithm": ["RS256"] },
        });
        self.ask("POST", &format!("/admin/realms/{REALM}/components"), Some(&component)).await?;
        Ok(())
    }
}

/// Its script starts Java as a child, which would outlive the script's sudden end.
impl Drop for Keycloak {
    fn drop(&mut self) {
        let group = self.process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = group {
            // Err: all of it has ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

fn text(answer: &Value, member: &str) -> Result<String> {
    let text = answer.get(member).and_then(Value::as_str);
    Ok(text.with_context(|| answer.to_string())?.to_owned())
}
