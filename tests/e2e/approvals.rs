//! Approval by another person, end to end: a call waits until somebody else of the group approves on the page, in a real
//! browser, or by command. A grant is not used twice, for other arguments, after its time or after a change of the policy, and
//! neither the caller nor a machine gives one (I-12).

use anyhow::{Context, Result, ensure};
use asp_e2e::chromium::Chromium;
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::push_receiver::Receiver;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{tool, wait};
use rmcp::model::CallToolRequestParams;
use rmcp::service::ClientServiceExt;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::task::JoinHandle;

use crate::clients;
use crate::message::{modern, modern_of, rest};
use crate::trial::{Shared, trials};

/// Arguments of `asp token` for people, and for what is none: the client that the development issuer names in each token.
const BOB: [&str; 6] = ["--user", "bob", "--role", "org:acme", "--group", "finance"];
const CALLER: [&str; 6] = ["--user", "alice", "--role", "org:acme", "--group", "finance"];
const MACHINE: [&str; 6] = ["--user", "asp-cli", "--role", "org:acme", "--group", "finance"];
const OUTSIDER: [&str; 6] = ["--user", "eve", "--role", "org:acme", "--group", "staff"];
const PLATFORM: [&str; 6] = ["--user", "root", "--role", "platform", "--group", "finance"];
/// Changes one row of a database that a platform has open.
const CHANGE: &str = "import sqlite3, sys\n\
    database = sqlite3.connect(sys.argv[1], timeout=60)\n\
    with database:\n    changed = database.execute(sys.argv[2]).rowcount\n\
    assert changed == 1, changed\n";
/// Expression of SQLite for a time that has not come, in milliseconds.
const LATER: &str = "CAST(strftime('%s', 'now') AS INTEGER) * 1000 + 600000";

trials! { approvals:
    another_person_approves_on_the_page_or_by_command_and_a_grant_is_good_once,
}

/// A platform on which finance approves each call of `echo`.
struct Office {
    stack: Stack,
    receiver: Receiver,
    root: String,
    alice: String,
}

async fn another_person_approves_on_the_page_or_by_command_and_a_grant_is_good_once(
    _: &Shared,
) -> Result<()> {
    let office = Office::start().await?;
    by_page(&office).await.context("the page")?;
    let used = by_command(&office).await.context("the command")?;
    by_nobody_else(&office).await.context("who may not decide")?;
    bound(&office, &used).await.context("what a grant is bound to")?;
    after_its_time(&office).await.context("a request past its time")?;
    after_a_change(&office).await.context("a change of the policy")?;
    office.stack.stop(&[]).await
}

impl Office {
    async fn start() -> Result<Office> {
        let receiver = Receiver::start().await?;
        let environment = vec![("ASP_APPROVAL_WEBHOOK", receiver.url.clone())];
        let stack = Stack::start(Options { environment, ..Options::repository()? }).await?;
        let root = stack.token(&["--admin", "--user", "root"]).await?;
        let alice = stack.alice().await?;
        let office = Office { stack, receiver, root, alice };
        office.put(&by_finance()).await?;
        // A client that can ask its user is answered at once.
        let asking = modern_of(&office.alice, call("is it in force"), &json!({"elicitation": {}}), &named());
        let asked = wait::until("finance approves", wait::CONVERGE, || async {
            let answer = http1::send(office.stack.edge(), &asking).await.ok()?.json().ok()?;
            (answer["result"]["resultType"] == "input_required").then_some(answer)
        })
        .await?;
        let shown = asked["result"].to_string();
        ensure!(shown.contains("waits for approval by finance") && !shown.contains("/approvals/"), "{shown}");
        let open = office.open("is it in force").await?;
        office.decide(&open, &BOB, "deny", 200).await?;
        Ok(office)
    }

    async fn put(&self, binding: &Value) -> Result<()> {
        let path = "/api/policy/orgs/acme/bindings?force=true";
        let answer = http1::send(self.stack.admin(), &rest("PUT", path, &self.root, binding)).await?;
        ensure!(answer.status < 300, "{}", answer.text());
        Ok(())
    }

    /// Starts a call of alice.
    fn begin(&self, message: &str) -> JoinHandle<Result<Value>> {
        let edge = self.stack.edge();
        let request = echo(&self.alice, message);
        tokio::spawn(async move { http1::send(edge, &request).await?.json() })
    }

    /// Returns the open request of a call, once there is one.
    async fn open(&self, message: &str) -> Result<Value> {
        let list = rest("GET", "/api/approvals?org=acme&state=pending", &self.root, &Value::Null);
        wait::until(&format!("a request for {message:?}"), wait::CONVERGE, || async {
            let listed = http1::send(self.stack.admin(), &list).await.ok()?.json().ok()?;
            let is_its = |one: &&Value| one["arguments"].as_str().is_some_and(|text| text.contains(message));
            listed.as_array()?.iter().find(is_its).cloned()
        })
        .await
    }

    /// Decides a request as an admin of these arguments of `asp token`, which is answered with this status.
    async fn decide(&self, open: &Value, who: &[&str; 6], decision: &str, status: u16) -> Result<Response> {
        let path = format!("/api/approvals/{}/decision", id_of(open)?);
        let decide = rest("POST", &path, &self.admin_token(who).await?, &json!({"decision": decision}));
        let answer = http1::send(self.stack.admin(), &decide).await?;
        ensure!(answer.status == status, "{who:?}: {} {}", answer.status, answer.text());
        Ok(answer)
    }

    async fn admin_token(&self, who: &[&str; 6]) -> Result<String> {
        let mut arguments = vec!["--admin"];
        arguments.extend(who);
        self.stack.token(&arguments).await
    }

    /// Runs `asp approvals` as bob; what it prints, or its error.
    async fn asp(&self, arguments: &[&str]) -> Result<Result<String, String>> {
        let mut command = Command::new(tool::asp()?);
        command.arg("approvals").args(arguments).kill_on_drop(true);
        command.env("ASP_ADMIN_URL", format!("http://{}", self.stack.admin()));
        command.env("ASP_ADMIN_TOKEN", self.admin_token(&BOB).await?);
        let output = command.output().await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
    }

    /// Changes the columns of a request in the database.
    async fn change(&self, request: &Value, columns: &str) -> Result<()> {
        let mut command = Command::new(tool::python()?);
        command.args(["-c", CHANGE]).arg(self.stack.state.path().join("calls.db"));
        command.arg(format!("UPDATE approvals SET {columns} WHERE seq = {}", request["number"]));
        let output = command.kill_on_drop(true).output().await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// A call that is answered only after another approval, which is denied.
    async fn asks_again(&self, message: &str, before: &Value) -> Result<()> {
        let calling = self.begin(message);
        let open = self.open(message).await?;
        ensure!(open["id"] != before["id"], "{open}");
        self.decide(&open, &BOB, "deny", 200).await?;
        let denied = result(calling).await?;
        ensure!(denied["isError"] == true && denied.to_string().contains("was denied"), "{denied}");
        Ok(())
    }
}

fn by_finance() -> Value {
    json!({
        "target": {"type": "user", "idOrPattern": "*"},
        "primitive": {"name": "echo", "protocol": "*"},
        "allowed": true, "approval": true, "approvers": {"group": "finance"},
    })
}

fn call(message: &str) -> (&'static str, Value) {
    ("tools/call", json!({"name": "echo", "arguments": {"message": message}}))
}

fn named() -> [(&'static str, &'static str); 1] {
    [("mcp-name", "echo")]
}

fn echo(token: &str, message: &str) -> Request {
    let (method, params) = call(message);
    modern(token, method, params, &named())
}

fn id_of(request: &Value) -> Result<&str> {
    request["id"].as_str().with_context(|| request.to_string())
}

async fn result(calling: JoinHandle<Result<Value>>) -> Result<Value> {
    let answer = calling.await??;
    Ok(answer["result"].clone())
}

/// An official client's call waits; the caller herself may not approve on the page, and bob does.
async fn by_page(office: &Office) -> Result<()> {
    const MESSAGE: &str = "pay <b>5</b> to bob";
    let url = office.stack.mcp_url("demo");
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .auth_header(office.alice.clone())
        .custom_headers(clients::named());
    let transport = StreamableHttpClientTransport::from_config(config);
    let client = ().serve_with_lifecycle(transport, clients::modern()).await?;
    let arguments = serde_json::from_value(json!({"message": MESSAGE}))?;
    let call = CallToolRequestParams::new("echo").with_arguments(arguments);
    let calling = tokio::spawn(async move {
        let result = client.call_tool(call).await;
        client.cancel().await?;
        anyhow::Ok(serde_json::to_value(result?)?)
    });
    let open = office.open(MESSAGE).await?;
    let notice = office.receiver.until(|notice| notice["id"] == open["id"]).await?;
    ensure!(!notice.body.to_string().contains("<b>"), "no arguments: {}", notice.body);
    let page = notice.body["url"].as_str().context("an address")?;
    let browser = Chromium::start().await?;
    log_in(office, &browser, page, "alice").await?;
    let shown = says(&browser, "You may not decide").await?;
    ensure!(!shown.contains(MESSAGE), "{shown}");
    browser.clear_cookies().await?;
    log_in(office, &browser, page, "bob").await?;
    let shown = says(&browser, "You are bob").await?;
    for part in ["alice of acme", "Echo", "echo@1.0.0", MESSAGE] {
        ensure!(shown.contains(part), "{part}: {shown}");
    }
    ensure!(!calling.is_finished(), "it waits, although its page was read");
    browser.click("button[value=approve]").await?;
    says(&browser, "The call runs now").await?;
    let done = calling.await??;
    ensure!(done["structuredContent"]["message"] == MESSAGE, "{done}");
    // The page decides once.
    browser.open(page).await?;
    let shown = says(&browser, "approved and used").await?;
    ensure!(shown.contains("dev:bob@acme"), "{shown}");
    browser.stop().await
}

/// Opens a page, and logs in at the development issuer as somebody of finance.
async fn log_in(office: &Office, browser: &Chromium, page: &str, user: &str) -> Result<()> {
    browser.open(page).await?;
    browser.arrives(&format!("http://{}/dev-login/authorize", office.stack.admin())).await?;
    browser.fill("input[name=groups]", "finance").await?;
    browser.click(&format!("button[value={user}]")).await?;
    browser.arrives(page).await.map(drop)
}

/// Waits until the page has a text; returns the whole text.
async fn says(browser: &Chromium, wanted: &str) -> Result<String> {
    let shown = wait::until(wanted, wait::CONVERGE, || async {
        let text = browser.run("return document.body.textContent").await.ok()?.as_str()?.to_owned();
        text.contains(wanted).then_some(text)
    });
    match shown.await {
        Ok(text) => Ok(text),
        Err(late) => {
            let shown = browser.run("return document.body.textContent").await?;
            let url = browser.url().await?;
            Err(late).with_details(|| format!("the page at {url} says {shown}"))
        }
    }
}

/// Approves by command; returns the request, whose grant is used.
async fn by_command(office: &Office) -> Result<Value> {
    const MESSAGE: &str = "pay by command";
    let calling = office.begin(MESSAGE);
    let open = office.open(MESSAGE).await?;
    let id = id_of(&open)?;
    let listed = office.asp(&["list"]).await?.map_err(anyhow::Error::msg)?;
    ensure!(listed.contains("alice calls echo@1.0.0 of demo, finance decides"), "{listed}");
    let approve = ["approve", id, "--reason", "invoice 7 checked"];
    let approved = office.asp(&approve).await?.map_err(anyhow::Error::msg)?;
    ensure!(approved.contains(id), "{approved}");
    let done = result(calling).await?;
    ensure!(done["structuredContent"]["message"] == MESSAGE, "{done}");
    let again = office.asp(&approve).await?;
    ensure!(again.as_ref().is_err_and(|error| error.contains("decided, used or withdrawn")), "{again:?}");
    office.asks_again(MESSAGE, &open).await.context("the same call, replayed")?;
    Ok(open)
}

/// The caller, a machine, somebody of another group and an admin of the platform approve nothing.
async fn by_nobody_else(office: &Office) -> Result<()> {
    const MESSAGE: &str = "pay by nobody";
    let calling = office.begin(MESSAGE);
    let open = office.open(MESSAGE).await?;
    for (who, why) in [
        (CALLER, "does not approve a call of their own"),
        (MACHINE, "a machine approves nothing"),
        (OUTSIDER, "only members of the group"),
        (PLATFORM, ""),
    ] {
        let refused = office.decide(&open, &who, "approve", 403).await?;
        ensure!(refused.text().contains(why), "{who:?}: {}", refused.text());
    }
    ensure!(!calling.is_finished(), "the call waits");
    office.decide(&open, &BOB, "deny", 200).await?;
    let denied = result(calling).await?;
    ensure!(denied["isError"] == true, "{denied}");
    Ok(())
}

/// A grant that no call has used is for its arguments, and for its time. `used` is a request whose grant is used.
async fn bound(office: &Office, used: &Value) -> Result<()> {
    office.change(used, &format!("state = 'approved', used_ms = 0, expires_ms = {LATER}")).await?;
    office.asks_again("pay by command, and more", used).await.context("other arguments")?;
    // Nobody is asked.
    let done = result(office.begin("pay by command")).await?;
    ensure!(done["isError"] == false, "{done}");
    office.change(used, "state = 'approved', used_ms = 0, expires_ms = 1").await?;
    office.asks_again("pay by command", used).await.context("after its time")
}

async fn after_its_time(office: &Office) -> Result<()> {
    const MESSAGE: &str = "pay too late";
    let calling = office.begin(MESSAGE);
    let open = office.open(MESSAGE).await?;
    office.change(&open, "expires_ms = 1").await?;
    let late = office.decide(&open, &BOB, "approve", 409).await?;
    ensure!(late.text().contains("has expired"), "{}", late.text());
    ensure!(!calling.is_finished(), "the call waits");
    calling.abort();
    Ok(())
}

async fn after_a_change(office: &Office) -> Result<()> {
    const MESSAGE: &str = "pay after a change";
    let calling = office.begin(MESSAGE);
    let open = office.open(MESSAGE).await?;
    office
        .put(&json!({
            "target": {"type": "user", "idOrPattern": "*"},
            "primitive": {"name": "clock", "protocol": "*"},
            "allowed": false,
        }))
        .await?;
    let list = modern(&office.alice, "tools/list", json!({}), &[]);
    wait::until("the change is in force", wait::CONVERGE, || async {
        let listed = http1::send(office.stack.gateway(), &list).await.ok()?.text();
        (listed.contains("\"echo\"") && !listed.contains("\"clock\"")).then_some(())
    })
    .await?;
    office.decide(&open, &BOB, "approve", 200).await?;
    let refused = result(calling).await?;
    ensure!(
        refused["isError"] == true && refused.to_string().contains("the policy has changed"),
        "{refused}"
    );
    office.asks_again(MESSAGE, &open).await
}
