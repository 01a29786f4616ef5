//! Who administers the platform by the company's login: a person, a team's CI; and who gets in while the login is away.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::browser::Browser;
use asp_e2e::{http1, tool, wait};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::{ALICE, Company, action, realm};

/// Hang guard of `asp login`.
const LOGIN: Duration = Duration::from_secs(60);
/// Hang guard of a token's end: it counts for half a minute longer than it says.
const ENDED: Duration = Duration::from_secs(90);

/// The platform takes the realm's tokens of admins, and the roles that its groups give.
pub(super) async fn trusted(company: &Company) -> Result<()> {
    let issuer = json!({
        "iss": company.keycloak.issuer(), "typ": ["JWT"], "audiences": ["asp"], "orgs": ["*"],
        "claims": { "user": "preferred_username", "groups": "/realm_access/roles" },
        "roles": { "staff": "server:notes", "deployers": "server:memos" }, "login": { "clientId": "cli" },
    });
    company.put("/api/issuers/admins/kc", &issuer).await?;
    let admin = company.stack.admin();
    wait::until("admins can log in", wait::CONVERGE, || async move {
        let answer = http1::get(admin, "/api/login", &[]).await.ok()?;
        answer.text().contains("deviceAuthorizationEndpoint").then_some(())
    })
    .await
}

/// An admin has the role that his group gives: his team's server, and no other.
pub(super) async fn log_in(company: &Company) -> Result<()> {
    let home = tempfile::tempdir()?;
    let asp = |arguments: &[&str]| -> Result<Command> {
        let mut command = asp(company, home.path(), arguments)?;
        command.env_remove("ASP_ADMIN_TOKEN");
        Ok(command)
    };
    let mut login = asp(&["login"])?;
    let mut child = login.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let line = lines.next_line().await?.context("where to log in")?;
    let page = line.strip_prefix("open ").with_context(|| line.clone())?;
    Browser::default().visit_all(page, &ALICE).await?;
    let ended = tokio::time::timeout(LOGIN, child.wait()).await.context("asp login did not end")??;
    ensure!(ended.success(), "asp login: {ended}");
    let own = folder(&realm::notes())?;
    applied(&asp(&["apply"])?.arg(own.path()).output().await?)?;
    refused(&asp(&["apply"])?.arg(tool::root()?.join("primitives")).output().await?)
}

/// A team's CI has an account of its own at the issuer, and no person to log it in.
pub(super) async fn deploy(company: &Company) -> Result<()> {
    let form = format!("grant_type=client_credentials&client_id=ci&client_secret={}", realm::CI_SECRET);
    let token = company.keycloak.token(&form).await?;
    let home = tempfile::tempdir()?;
    let apply = |folder: &TempDir| -> Result<Command> {
        let mut command = asp(company, home.path(), &["apply"])?;
        command.arg(folder.path()).env("ASP_ADMIN_TOKEN", &token);
        Ok(command)
    };
    let mut memos = realm::memos();
    let text = memos["files"][1]["text"].as_str().unwrap_or_default().replace("again", "once more");
    memos["files"][1]["text"] = json!(text);
    applied(&apply(&folder(&memos)?)?.output().await?)?;
    refused(&apply(&folder(&realm::notes())?)?.output().await?)?;
    let audit = audit(company).await?;
    let row = audit.iter().find(|row| row["resource"] == "server/memos");
    let row = row.with_context(|| json!(audit).to_string())?;
    ensure!(row["actor"].as_str().is_some_and(|actor| actor.starts_with("service-account-ci@")), "{row}");
    checked(company, &memos, &token).await
}

/// The action passes what is served, and shows a breaking change and a fault at their files.
async fn checked(company: &Company, served: &Value, token: &str) -> Result<()> {
    let run = async |files: &Value| {
        let checkout = tempfile::tempdir()?;
        write(files, &checkout.path().join("primitives"))?;
        action::run(company, checkout.path(), token).await
    };
    let same = run(served).await?;
    ensure!(
        same.output.status.success() && same.findings.is_empty(),
        "{:?} {:?}",
        same.findings,
        same.output
    );
    let changed = |old: &str, new: &str| {
        let mut files = served.clone();
        let text = files["files"][1]["text"].as_str().unwrap_or_default().replace(old, new);
        files["files"][1]["text"] = json!(text);
        files
    };
    let hello = "primitives/memos/hello.yaml";
    let breaking = run(&changed("required: [message]", "required: [message, more]")).await?;
    let is_error = |finding: &action::Finding| finding.level == "error" && finding.file == hello;
    ensure!(!breaking.output.status.success(), "{:?}", breaking.output);
    ensure!(breaking.findings.iter().any(is_error), "{:?} {:?}", breaking.findings, breaking.output);
    let faulty = run(&changed("mutation: read_only", "mutation: sometimes")).await?;
    ensure!(!faulty.output.status.success(), "{:?}", faulty.output);
    let at = faulty.findings.iter().find(|finding| is_error(finding)).context("a finding")?;
    ensure!(at.line == 7, "the line of `mutation`: {at:?}");
    Ok(())
}

/// `asp`, for the company's platform.
pub(super) fn asp(company: &Company, home: &Path, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(tool::asp()?);
    command.args(arguments).env("ASP_ADMIN_URL", format!("http://{}", company.stack.admin()));
    command.env("HOME", home).env_remove("XDG_CONFIG_HOME").kill_on_drop(true);
    Ok(command)
}

/// The files of a server, as a team has them.
fn folder(files: &Value) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    write(files, folder.path())?;
    Ok(folder)
}

fn write(files: &Value, folder: &Path) -> Result<()> {
    for file in files["files"].as_array().context("files")? {
        let path = folder.join(file["path"].as_str().unwrap_or_default());
        std::fs::create_dir_all(path.parent().context("its folder")?)?;
        std::fs::write(path, file["text"].as_str().unwrap_or_default())?;
    }
    Ok(())
}

fn applied(output: &Output) -> Result<()> {
    ensure!(output.status.success(), "its own: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Others' servers do not exist for it.
fn refused(output: &Output) -> Result<()> {
    ensure!(!output.status.success(), "others': {}", String::from_utf8_lossy(&output.stdout));
    ensure!(String::from_utf8_lossy(&output.stderr).contains("404 not_found"), "{output:?}");
    Ok(())
}

async fn audit(company: &Company) -> Result<Vec<Value>> {
    let answer = company.ask_admin(&company.admin, "/api/audit").await?;
    ensure!(answer.status == 200, "{}", answer.text());
    Ok(answer.json()?.as_array().cloned().unwrap_or_default())
}

/// The way in while the login is away: minted offline, audited before it opens anything. The token, which ends soon.
pub(super) async fn emergency(company: &Company) -> Result<String> {
    let arguments = ["--break-glass", "--user", "ops", "--reason", "the login is down", "--ttl", "1s"];
    let token = company.stack.token(&arguments).await?;
    let answer = company.ask_admin(&token, "/api/audit").await?;
    ensure!(answer.status == 200, "{}", answer.text());
    is_audited(answer.json()?.as_array().context("rows")?)?;
    Ok(token)
}

/// An emergency token that has ended opens nothing, and what it was used for stands in the audit.
pub(super) async fn emergency_over(company: &Company, token: &str) -> Result<()> {
    let refusal = wait::until("the emergency token ends", ENDED, || async {
        company.ask_admin(token, "/api/audit").await.ok().filter(|answer| answer.status != 200)
    })
    .await?;
    let code = refusal.json()?["code"].clone();
    ensure!((refusal.status, &code) == (401, &json!("token_expired")), "{}", refusal.text());
    is_audited(&audit(company).await?)
}

fn is_audited(rows: &[Value]) -> Result<()> {
    let row = rows.iter().find(|row| row["action"] == "break_glass").context("its use is audited")?;
    ensure!(row["actor"] == "break-glass:ops@platform" && row["detail"] == "the login is down", "{row}");
    Ok(())
}
