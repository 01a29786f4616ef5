//! A realm is added by the preset of its provider: a token of it is tried first, and it is stored only if that is accepted.

use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::browser::Browser;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::admins::asp;
use super::{ALICE, Company, alice, realm};

/// The realm, and the issuer's name.
const BRANCH: &str = "branch";
/// Hang guard of a login.
const LOGIN: Duration = Duration::from_secs(60);

/// Adds the realm, tries tokens that are accepted and refused, and deletes it.
pub(super) async fn added(company: &Company) -> Result<()> {
    let mut branch = realm::acme();
    branch["realm"] = json!(BRANCH);
    company.keycloak.ask("POST", "/admin/realms", Some(&branch)).await?;
    let home = tempfile::tempdir()?;
    let command = |arguments: &[&str]| -> Result<Command> {
        let mut command = asp(company, home.path(), arguments)?;
        command.env("ASP_ADMIN_TOKEN", &company.admin);
        command.env("ASP_EDGE_URL", format!("http://{}", company.stack.edge()));
        Ok(command)
    };
    let place = company.keycloak.issuer_of(BRANCH);
    let values =
        ["issuer", "add", BRANCH, "--preset", "keycloak", "--at", place.as_str(), "--client-id", "cli"];
    let add = |more: &[&str]| command(&[&values[..], &["--org", "acme"], more].concat());

    let token = home.path().join("token");
    std::fs::write(&token, company.keycloak.token_of(BRANCH, &alice("direct")).await?)?;
    let token = token.to_str().context("its path")?;
    let refused = add(&["--audience", "other", "--token", token])?.output().await?;
    ensure!(refused.status.code() == Some(1), "{refused:?}");
    let why = String::from_utf8_lossy(&refused.stderr);
    ensure!(why.contains("accepted are other, http://") && why.contains("audience mapper"), "{why}");
    ensure!(status(company).await? == 404, "a refused one is not stored");

    let printed = succeeded(add(&["--print"])?.output().await?)?;
    ensure!(printed.contains("\"groups\": \"/realm_access/roles\""), "{printed}");
    ensure!(status(company).await? == 404, "a printed one is not stored");

    let said = log_in(&mut add(&[])?).await?;
    ensure!(said.contains("the platform accepts this token") && said.contains("staff"), "{said}");
    ensure!(status(company).await? == 200, "{said}");
    let again = add(&["--no-login"])?.output().await?;
    ensure!(String::from_utf8_lossy(&again.stderr).contains("412"), "it is not replaced: {again:?}");

    let said = succeeded(command(&["issuer", "try", BRANCH, "--token", token])?.output().await?)?;
    ensure!(said.contains("org     acme"), "{said}");
    let listed = succeeded(command(&["issuer", "list"])?.output().await?)?;
    ensure!(listed.lines().any(|line| line.contains(BRANCH) && line.contains("keys=")), "{listed}");
    succeeded(command(&["issuer", "remove", BRANCH])?.output().await?)?;
    ensure!(status(company).await? == 404, "it is deleted");
    Ok(())
}

/// Runs the command while alice logs in in a browser; returns what it printed.
async fn log_in(command: &mut Command) -> Result<String> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let mut said = String::new();
    while let Some(line) = lines.next_line().await? {
        if let Some(page) = line.strip_prefix("open ") {
            Browser::default().visit_all(page, &ALICE).await?;
        }
        said.push_str(&line);
        said.push('\n');
    }
    let ended = tokio::time::timeout(LOGIN, child.wait()).await.context("it did not end")??;
    ensure!(ended.success(), "{ended}: {said}");
    Ok(said)
}

fn succeeded(output: Output) -> Result<String> {
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Status of the stored issuer.
async fn status(company: &Company) -> Result<u16> {
    Ok(company.ask_admin(&company.admin, "/api/issuers/clients/branch").await?.status)
}
