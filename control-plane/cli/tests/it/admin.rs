//! Commands of a platform admin against a control plane.

use std::process::Output;

use serde_json::Value;

use crate::support::{Serving, answers_200, asp, primitives, run, text};

/// A control plane, and a platform admin who runs commands against it.
struct Admin {
    state: tempfile::TempDir,
    serving: Serving,
    token: String,
}

impl Admin {
    async fn start() -> Admin {
        let state = tempfile::tempdir().unwrap();
        let serving = Serving::start(state.path()).await;
        answers_200(&serving.url("admin", "/readyz")).await;
        let minted = run(asp(state.path()).args(["token", "--admin", "--user", "ops"]));
        let token = text(&minted.stdout).trim().to_owned();
        Admin { state, serving, token }
    }

    fn run(&self, args: &[&str]) -> Output {
        self.run_as(&self.token, args)
    }

    fn run_as(&self, token: &str, args: &[&str]) -> Output {
        let mut command = asp(self.state.path());
        command.env("ASP_ADMIN_URL", self.serving.url("admin", "")).env("ASP_ADMIN_TOKEN", token);
        run(command.args(args))
    }

    fn good(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn listed(&self, kind: &str) -> Value {
        serde_json::from_str(&self.good(&["machines", kind, "list", "acme", "--json"])).unwrap()
    }
}

#[tokio::test]
async fn what_breaks_callers_ends_diff_and_apply_with_3_until_it_is_forced() {
    let control = Admin::start().await;
    let mine = control.state.path().join("mine/demo");
    std::fs::create_dir_all(&mine).unwrap();
    for entry in std::fs::read_dir(primitives().join("demo")).unwrap() {
        let file = entry.unwrap().path();
        if file.is_file() {
            let text = std::fs::read_to_string(&file).unwrap().replace("maxLength: 65536", "maxLength: 10");
            // Another server lists the same primitive at its first version.
            let text = text.replace("version: 1.0.0", "version: 1.1.0");
            std::fs::write(mine.join(file.file_name().unwrap()), text).unwrap();
        }
    }
    let directory = control.state.path().join("mine");
    let directory = directory.to_str().unwrap();
    let admin = |args: &[&str]| control.run(&[args, &[directory]].concat());
    let diff = admin(&["diff"]);
    assert_eq!(diff.status.code(), Some(3), "{}", text(&diff.stderr));
    assert!(text(&diff.stdout).contains("BREAKING without a new major version"), "{}", text(&diff.stdout));
    let refused = admin(&["apply"]);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("breaking_change"), "{}", text(&refused.stderr));
    let forced = admin(&["apply", "--force"]);
    assert_eq!(forced.status.code(), Some(0), "{}", text(&forced.stderr));
    assert!(text(&forced.stdout).contains("BREAKING"), "apply prints the changes: {}", text(&forced.stdout));
    assert_eq!(admin(&["diff"]).status.code(), Some(0), "now it is what is stored");
}

#[tokio::test]
async fn a_directory_is_deployed_after_a_plan_that_changes_nothing() {
    let admin = Admin::start().await;
    let root = admin.state.path().join("mine");
    let folder = root.join("salute");
    std::fs::create_dir_all(&folder).unwrap();
    let server = "apiVersion: asp/v1\nname: salute\ndescription: A test.\nversion: 1.0.0\nprotocols: [mcp]\n\
        defaultExposure: allow\nauth: {schemes: [jwt], issuers: [dev]}\nprimitives:\n  - ref: salute/salute\n";
    std::fs::write(folder.join("server.yaml"), server).unwrap();
    let spec = |schema: &str| {
        let text = format!(
            "id: salute\nname: salute\ntype: tool\nversion: 1.0.0\nowner: test@example.com\nsummary: Tests it.\n\
             mutation: read_only\nprimitiveSchema: {{input_schema: {schema}}}\nsecurity: {{riskClass: low}}\n\
             runtime: {{mode: builtin, entrypoint: echo}}\n"
        );
        std::fs::write(folder.join("salute.yaml"), text).unwrap();
    };
    spec("{type: object, properties: {who: {type: string}}, required: [who]}");
    let directory = root.to_str().unwrap();
    let plan = admin.good(&["deploy", directory, "--plan"]);
    assert_eq!(
        plan,
        "apply    salute: new\naccess   salute: every organisation gains it (`defaultExposure: allow`)\n"
    );
    let refused = admin.run(&["deploy", directory]);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("deploy with --yes"), "{said}");
    assert!(!admin.good(&["servers", "list"]).contains("salute"), "neither has stored it");

    let done = admin.good(&["deploy", directory, "--yes"]);
    assert!(done.contains("salute: applied at revision"), "{done}");
    let end = "served: salute at http://127.0.0.1:8080/salute/mcp\n  next: asp call salute salute --arg 'who=STRING'\n";
    assert!(done.ends_with(end), "{done}");
    let again = admin.good(&["deploy", directory]);
    assert!(
        again.starts_with("apply    salute: unchanged") && again.ends_with(end),
        "nothing to ask: {again}"
    );

    spec("{type: object, properties: {who: {type: integer}}, required: [who]}");
    let breaking = admin.run(&["deploy", directory, "--yes"]);
    assert_eq!(breaking.status.code(), Some(3), "{}", text(&breaking.stderr));
    assert!(text(&breaking.stdout).contains("BREAKING"), "{}", text(&breaking.stdout));
    admin.good(&["deploy", directory, "--yes", "--force", "--json"]);
}

#[tokio::test]
async fn keys_of_machines_are_made_rotated_and_revoked_by_commands() {
    let admin = Admin::start().await;
    let refused = admin.run(&["machines", "keys", "create", "acme", "press", "--group", "robots"]);
    assert!(text(&refused.stderr).contains("asp machines bound acme --allow-group robots"), "{refused:?}");
    admin.good(&["machines", "bound", "acme", "--allow-group", "robots", "--allow-group", "old"]);
    let shown = admin.good(&["machines", "bound", "acme", "--withdraw-group", "old"]);
    assert_eq!(shown, "groups: robots\nscopes: none\nbeyond the bound, opens nothing: none\n");
    let made =
        admin.good(&["machines", "keys", "create", "acme", "press", "--group", "robots", "--ttl", "1h"]);
    let is_key = |made: &str| made.starts_with("asp_psk_") && made.lines().count() == 1;
    assert!(is_key(&made), "the key stands alone");
    let first = admin.listed("keys")[0].clone();
    let id = first["id"].as_str().unwrap();
    assert!(made.contains(id) && first.get("key").is_none());
    let next = admin.good(&["machines", "keys", "rotate", "acme", id]);
    assert!(is_key(&next) && next != made);
    let both = admin.listed("keys");
    let lives = |key: &Value| key["expiresAt"].as_u64().unwrap() - key["createdAt"].as_u64().unwrap();
    let same = |one: &Value| (one["machine"].clone(), one["groups"].clone(), lives(one));
    assert_eq!((both.as_array().unwrap().len(), same(&both[0])), (2, same(&both[1])));
    let shown: Value =
        serde_json::from_str(&admin.good(&["machines", "keys", "create", "acme", "arm", "--json"])).unwrap();
    assert!(shown["key"].as_str().is_some_and(is_key), "{shown}");
    assert!(admin.good(&["machines", "keys", "revoke", "acme", id]).starts_with("revoked"));
    assert!(!admin.good(&["machines", "keys", "list", "acme"]).contains(id));
    let gone = admin.run(&["machines", "keys", "rotate", "acme", id]);
    assert!(gone.status.code() == Some(1) && gone.stdout.is_empty(), "{}", text(&gone.stdout));
}

#[tokio::test]
async fn certificates_of_machines_are_registered_and_revoked_by_commands() {
    let admin = Admin::start().await;
    let file = admin.state.path().join("press.crt");
    std::fs::write(&file, "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n").unwrap();
    let file = file.to_str().unwrap();
    admin.good(&["machines", "certificates", "register", "acme", "press", "--certificate", file]);
    let by_uri =
        ["machines", "certificates", "register", "acme", "press", "--uri", "spiffe://factory.example/press"];
    assert!(admin.good(&by_uri).starts_with("registered: "));
    let certificates = admin.listed("certificates");
    assert_eq!(certificates.as_array().unwrap().len(), 2);
    let taken = admin.run(&["machines", "certificates", "register", "other", "press", "--certificate", file]);
    assert!(text(&taken.stderr).contains("certificate_in_use"), "{}", text(&taken.stderr));
    admin.good(&["machines", "certificates", "revoke", "acme", certificates[0]["id"].as_str().unwrap()]);
    assert_eq!(admin.listed("certificates").as_array().unwrap().len(), 1);
    let nothing = admin.run(&["machines", "certificates", "register", "acme", "press"]);
    assert_ne!(nothing.status.code(), Some(0), "one of three says which it is");
}

#[tokio::test]
async fn bindings_with_conditions_are_written_by_commands() {
    let admin = Admin::start().await;
    admin.good(&[
        "policy",
        "acme",
        "--approval",
        "echo",
        "--when",
        "/message",
        "glob",
        "*now*",
        "--name",
        "now",
        "--observe",
    ]);
    let policy: Value = serde_json::from_str(&admin.good(&["policy", "acme"])).unwrap();
    let binding = &policy["bindings"][0];
    assert_eq!(
        (&binding["name"], &binding["approval"], &binding["observe"]),
        (&"now".into(), &true.into(), &true.into())
    );
    assert_eq!(binding["when"][0]["glob"], "*now*");
    let question =
        ["explain", "--org", "acme", "--server", "demo", "--primitive", "echo", "--json", "--arguments"];
    let explained = admin.good(&[question.as_slice(), &[r#"{"message": "do it now"}"#]].concat());
    assert!(explained.contains("needs_approval"), "{explained}");
    for wrong in [
        ["policy", "acme", "--deny", "echo", "--when", "/message", "is", "now"].as_slice(),
        &["policy", "acme", "--deny", "echo", "--when", "/message", "range", "now"],
        &["policy", "acme", "--deny", "echo", "--when", "/message", "equals"],
        &["policy", "acme", "--when", "/message", "equals", "now"],
        &["policy", "acme", "--deny", "echo", "--by", "finance"],
        &["policy", "acme", "--expose", "demo", "--observe"],
    ] {
        assert_ne!(admin.run(wrong).status.code(), Some(0), "{wrong:?}");
    }
    let missing = admin.run(&["policy", "acme", "--remove", "echo"]);
    let said = text(&missing.stderr);
    let removes = ["asp policy acme --remove echo --user '*' --name now", "--machine '*' --name now"];
    assert!(missing.status.code() == Some(1) && removes.iter().all(|wanted| said.contains(wanted)), "{said}");
    let removed = admin.good(&["policy", "acme", "--remove", "echo", "--name", "now"]);
    assert_eq!(removed.matches("acme: removed: an observed binding `now`").count(), 2, "{removed}");
    let policy: Value = serde_json::from_str(&admin.good(&["policy", "acme"])).unwrap();
    assert_eq!(policy["bindings"], serde_json::json!([]));
    let allows = admin.run(&["policy", "acme", "--allow", "echo", "--when", "/message", "equals", "now"]);
    assert!(text(&allows.stderr).contains("allows nothing"), "{}", text(&allows.stderr));
}

#[tokio::test]
async fn a_group_that_approves_is_written_explained_and_removed() {
    let admin = Admin::start().await;
    admin.good(&["policy", "acme", "--approval", "echo", "--by", "finance"]);
    let policy: Value = serde_json::from_str(&admin.good(&["policy", "acme"])).unwrap();
    let binding = &policy["bindings"][0];
    assert_eq!((&binding["approvers"]["group"], &binding["allowed"]), (&"finance".into(), &true.into()));
    let question = ["explain", "--org", "acme", "--server", "demo", "--primitive", "echo"];
    let explained = admin.good(&question);
    assert!(explained.contains("by another person of the group finance"), "{explained}");
    assert_eq!(admin.good(&["approvals", "list"]).trim(), "");
    let unknown = admin.run(&["approvals", "approve", "00000000-0000-0000-0000-000000000000"]);
    assert_ne!(unknown.status.code(), Some(0), "there is no such request");
    admin.good(&["policy", "acme", "--remove", "echo"]);
    let policy: Value = serde_json::from_str(&admin.good(&["policy", "acme"])).unwrap();
    assert_eq!(policy["bindings"], serde_json::json!([]));
}

#[tokio::test]
async fn a_call_that_a_condition_denies_is_explained_without_lifting_the_bound() {
    let admin = Admin::start().await;
    let words = |line: &'static str| line.split(' ').collect::<Vec<_>>();
    admin.good(&words("policy acme --deny echo --user bob --name never --when /message equals now"));
    let question = words("explain --org acme --user bob --server demo --primitive echo --arguments");
    let denied = admin.run(&[question.as_slice(), &[r#"{"message": "now"}"#]].concat());
    let said = text(&denied.stdout);
    assert_eq!(denied.status.code(), Some(1), "{said}");
    let command = r#"`asp policy acme --deny echo --user bob --name never --when /message equals '"now"'`"#;
    assert!(said.contains(command) && !said.contains("--remove") && !said.contains("--allow"), "{said}");
}

#[tokio::test]
async fn a_server_goes_back_to_an_earlier_version_by_commands() {
    let admin = Admin::start().await;
    let list: Value = serde_json::from_str(&admin.good(&["servers", "list", "--json"])).unwrap();
    assert!(list.as_array().unwrap().iter().any(|server| server["server"] == "demo"), "{list}");
    assert!(admin.good(&["servers", "list"]).contains("demo"));
    assert!(admin.good(&["tools"]).lines().any(|line| line.starts_with("demo ") && line.contains("echo")));
    let versions: Value =
        serde_json::from_str(&admin.good(&["servers", "versions", "demo", "--json"])).unwrap();
    let revision = versions[0]["revision"].to_string();
    assert!(admin.good(&["servers", "versions", "demo"]).starts_with(&revision));
    let back = admin.good(&["servers", "rollback", "demo", "--to", &revision]);
    assert_eq!(back.trim(), "demo is that already");
    let unknown = admin.run(&["servers", "rollback", "demo", "--to", "999999"]);
    assert!(unknown.status.code() == Some(1) && text(&unknown.stderr).contains("not_found"), "{unknown:?}");
    assert_eq!(admin.run(&["servers", "rollback", "demo"]).status.code(), Some(64), "no version is named");
    for (mistyped, meant) in [
        (["servers", "show", "demoo", "--org", "acme"], "no server is called demoo: did you mean demo?"),
        (["servers", "offer", "demo", "--to", "acmee"], "no org is called acmee: did you mean acme?"),
    ] {
        let refused = admin.run(&mistyped);
        assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(1), String::new()), "{mistyped:?}");
        assert!(text(&refused.stderr).contains(meant), "{}", text(&refused.stderr));
    }
    let deleted = admin.good(&["servers", "delete", "demo"]);
    assert!(deleted.contains("`asp servers rollback demo --to REVISION`"), "{deleted}");
    assert!(!admin.good(&["servers", "list"]).lines().any(|line| line.starts_with("demo ")));
    let back = admin.good(&["servers", "rollback", "demo", "--to", &revision]);
    assert!(back.contains("demo is rolled back to"), "{back}");
}

#[tokio::test]
async fn a_server_that_is_not_offered_is_shown_alike_to_each_role() {
    let admin = Admin::start().await;
    let minted =
        run(asp(admin.state.path()).args(["token", "--admin", "--user", "eve", "--role", "org:acme"]));
    let of_org = text(&minted.stdout).trim().to_owned();
    let show = ["servers", "show", "webex-compliance"];
    let of_acme = [show.as_slice(), &["--org", "acme"]].concat();
    for token in [&admin.token, &of_org] {
        let shown = admin.run_as(token, &of_acme);
        let said = text(&shown.stdout);
        assert_eq!(shown.status.code(), Some(1), "{said}");
        assert!(
            said.starts_with("webex-compliance for acme: offered no. An admin of webex-compliance"),
            "{said}"
        );
        let json = admin.run_as(token, &[of_acme.as_slice(), &["--json"]].concat());
        let state: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!((json.status.code(), &state["offered"]), (Some(1), &false.into()), "{state}");
    }
    let refused = admin.run_as(&of_org, &show);
    assert_eq!(refused.status.code(), Some(1));
    let hint = "`asp servers show webex-compliance --org ORG`";
    assert!(text(&refused.stderr).contains(hint), "{}", text(&refused.stderr));
    admin.good(&["servers", "offer", "webex-compliance", "--to", "acme", "--force"]);
    assert_eq!(admin.run_as(&of_org, &of_acme).status.code(), Some(0));
}

#[tokio::test]
async fn a2a_is_confirmed_for_a_new_server_and_for_none_that_does_not_list_it() {
    let admin = Admin::start().await;
    let confirm = |server: &'static str| ["servers", "confirm", server, "--protocol", "a2a"];
    let said = admin.good(&confirm("webex-compliance"));
    assert_eq!(said.trim(), "a2a is confirmed for webex-compliance already");
    let refused = admin.run(&confirm("demo"));
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("demo/server.yaml does not list a2a"), "{said}");
}

#[tokio::test]
async fn two_commands_say_the_same_of_a_server_that_is_on_over_one_protocol_alone() {
    let admin = Admin::start().await;
    admin.good(&["policy", "acme", "--hide", "demo", "--force"]);
    let state = "demo for acme: offered yes, switched on yes (over rest), no (over mcp)";
    let shown = admin.good(&["servers", "show", "demo", "--org", "acme"]);
    assert!(shown.starts_with(&format!("{state}, allowed: depends")), "{shown}");
    let question = "explain --org acme --user bob --server demo --primitive echo --protocol";
    let explain = |protocol: &str| {
        let words: Vec<&str> = question.split(' ').chain([protocol]).collect();
        text(&admin.run(&words).stdout)
    };
    let over_mcp = explain("mcp");
    assert!(
        over_mcp
            .contains(&format!("{state}. An admin of acme switches it on: `asp policy acme --expose demo`"))
    );
    let over_rest = explain("rest");
    assert!(over_rest.contains(&format!("{state}, allowed yes")), "{over_rest}");
}
