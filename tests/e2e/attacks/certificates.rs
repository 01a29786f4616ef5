//! Certificates are public: an org that has seen another org's certificate registers it by nothing but its key.

use anyhow::{Result, ensure};
use asp_e2e::{http1, stack, tool};
use serde_json::{Value, json};
use tokio::process::Command;

use super::refusal;
use crate::certificate::Files;
use crate::client_certificates::{URI, World, fingerprint, opens};
use crate::message::rest;
use crate::trial::{Shared, trials};

const CERTIFICATES: &str = "/api/machines/orgs/globex/certificates";

/// An admin of globex, who has seen the certificate of acme's machine.
struct Spy<'a> {
    world: &'a World,
    token: String,
}

impl Spy<'_> {
    /// The refusal of a registration by the API.
    async fn refused(&self, body: &Value) -> Result<(u16, String)> {
        let admin = self.world.at(self.world.ports.admin);
        let answer = http1::send(admin, &rest("POST", CERTIFICATES, &self.token, body)).await?;
        Ok(refusal(&answer))
    }

    /// Registers a certificate by the command, with a proof by this key; whether it is taken, and what is written.
    async fn proves(&self, machine: &str, certificate: &Files, key: &Files) -> Result<(bool, String)> {
        let mut command = Command::new(tool::asp()?);
        command.args(["machines", "certificates", "register", "globex", machine]);
        command.arg("--certificate").arg(&certificate.chain).arg("--key").arg(&key.key);
        command.env("ASP_ADMIN_URL", format!("http://{}", self.world.at(self.world.ports.admin)));
        let output = command.env("ASP_ADMIN_TOKEN", &self.token).kill_on_drop(true).output().await?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
    }
}

trials! { attacks: a_certificate_that_was_seen_makes_nobody_its_machine }

async fn a_certificate_that_was_seen_makes_nobody_its_machine(_: &Shared) -> Result<()> {
    let world = World::start("{ uri: true }").await?;
    // The platform says that the URI is of acme's machine `press`.
    let press = world.machine("press-8", URI)?;
    world.register(json!({"uri": URI})).await?;
    opens(&world, &press).await?;

    let arguments = ["--admin", "--user", "eve", "--role", "org:globex"];
    let token = stack::mint(&world.directory.path().join("control"), &arguments).await?;
    let spy = Spy { world: &world, token };
    for name in [json!({"fingerprint": fingerprint(&press)?}), json!({"uri": URI})] {
        let mut body = json!({"machine": "thief", "ttlSeconds": 3600});
        body.as_object_mut().unwrap().extend(name.as_object().unwrap().clone());
        ensure!(spy.refused(&body).await? == (403, "forbidden".into()), "{name} is written down");
    }
    let own = world.machine("arm", "spiffe://globex.example/arm")?;
    let (taken, said) = spy.proves("thief", &press, &own).await?;
    ensure!(!taken && said.contains("did not sign"), "by a key of another certificate: {said}");
    // Even with the key: the URI is the other org's.
    let (taken, said) = spy.proves("thief", &press, &press).await?;
    ensure!(!taken && said.contains("certificate_in_use"), "{said}");
    // The platform's own word about a single certificate does not take the URI from acme: as the machine `thief` it
    // would be denied what it calls.
    let written = json!({"machine": "thief", "fingerprint": fingerprint(&press)?, "ttlSeconds": 3600});
    world.tell("POST", CERTIFICATES, &written).await?;
    let deny = json!({
        "target": {"type": "machine", "idOrPattern": "thief"}, "primitive": {"name": "press.print"}, "allowed": false,
    });
    world.tell("PUT", "/api/policy/orgs/globex/bindings?force=true", &deny).await?;

    // A certificate whose key it has is its machine; by then the gateway knows of all that was written before.
    let (taken, said) = spy.proves("arm", &own, &own).await?;
    ensure!(taken, "{said}");
    opens(&world, &own).await?;
    opens(&world, &press).await?;
    drop(spy);
    world.stop().await
}
