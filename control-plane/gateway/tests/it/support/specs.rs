//! The repository's primitives and a few of the tests' own.

use std::path::Path;

use asp_registry::{Source, read_dir};

/// The tests' own server: primitives that need policy.
const TEST_SERVER: &str = "apiVersion: asp/v1\nname: policy\ntitle: Policy\ndescription: For tests.\nversion: 1.0.0\n\
         protocols: [mcp, rest]\nsessions: both\ndefaultExposure: allow\nauth: {schemes: [jwt], issuers: [dev]}\n\
         primitives: [{ref: policy/policy.open}, {ref: policy/policy.scoped}, {ref: policy/policy.wipe}, {ref: policy/policy.once}, {ref: policy/policy.few}]\n";

/// Primitives that run as plugins.
const PLUGIN_SERVER: &str = "apiVersion: asp/v1\nname: plugins\ntitle: Plugins\ndescription: For tests.\nversion: 1.0.0\n\
         protocols: [mcp, rest]\nsessions: both\ndefaultExposure: allow\nauth: {schemes: [jwt], issuers: [dev]}\n\
         primitives: [{ref: plugins/sweep}, {ref: plugins/order}, {ref: plugins/page}, {ref: plugins/advice}, {ref: plugins/book}, {ref: plugins/purge}, {ref: plugins/fetch}]\n";
/// Another server of theirs.
const PAY_SERVER: &str = "apiVersion: asp/v1\nname: pay\ntitle: Pay\ndescription: For tests.\nversion: 1.0.0\n\
         protocols: [mcp]\nsessions: both\ndefaultExposure: allow\nauth: {schemes: [jwt], issuers: [dev]}\n\
         primitives: [{ref: plugins/pay}]\n";
const PLUGIN_HEAD: &str =
    "version: 1.0.0\nowner: t@example.com\nsummary: A plugin.\ntags: [test]\nsecurity: {riskClass: low}\n";
const PLUGIN_RUNTIME: &str = "runtime: {mode: plugin, language: python, entrypoint: main.py}\n";

/// `sweep` only reads and asks; `book` and `purge` have effects and ask; `pay` asks for a card on a page; `fetch` reaches other services; `order` has effects; `page` is a resource template and `advice` a prompt, which ask, also for roots.
fn plugin_sources() -> Vec<Source> {
    let asks = "primitiveDependencies:\n  elicitations: [{id: plugins.name}]\n  delegations: [{id: plugins.label}]\n";
    let asks_all = asks.replace("[{id: plugins.label}]", "[{id: plugins.label}, {id: plugins.roots}]");
    let schema = "primitiveSchema:\n  input_schema: {type: object, properties: {n: {type: integer, default: 1}}}\n  \
                  output_schema: {type: object, required: [ok], properties: {ok: {type: boolean}}}\n";
    let can = "capabilities: {supportsProgress: true, supportsCancellation: true, supportsElicitation: true, \
               supportsDelegation: true, inputTimeoutSeconds: 2}\n";
    let rows = [
        ("server", PLUGIN_SERVER.to_owned()),
        (
            "sweep",
            format!("id: sweep\nname: Sweep\ntype: task\nmutation: read_only\n{PLUGIN_HEAD}{can}{asks}{schema}{PLUGIN_RUNTIME}"),
        ),
        (
            "order",
            format!("id: order\nname: Order\ntype: tool\nmutation: non_idempotent\n{PLUGIN_HEAD}{schema}{PLUGIN_RUNTIME}"),
        ),
        (
            "book",
            format!("id: book\nname: Book\ntype: task\nmutation: non_idempotent\n{PLUGIN_HEAD}{can}{asks}{schema}{PLUGIN_RUNTIME}"),
        ),
        (
            "purge",
            format!("id: purge\nname: Purge\ntype: task\nmutation: destructive\n{PLUGIN_HEAD}{can}{asks}{schema}{PLUGIN_RUNTIME}"),
        ),
        (
            "pay",
            format!("id: pay\nname: Pay\ntype: tool\nmutation: read_only\n{PLUGIN_HEAD}{can}{schema}{PLUGIN_RUNTIME}")
                .replace("supportsDelegation: true, ", "")
                + "primitiveDependencies:\n  elicitations: [{id: plugins.name}, {id: plugins.card}]\n",
        ),
        (
            "fetch",
            format!("id: fetch\nname: Fetch\ntype: tool\nmutation: non_idempotent\n{PLUGIN_HEAD}{schema}{PLUGIN_RUNTIME}").replace(
                "security: {riskClass: low}",
                "security: {riskClass: low, allowedDomains: [api.example.com, files.example.org], auth: {type: jwt, scopes: ['x:read']}}",
            ),
        ),
        (
            "page",
            format!(
                "id: page\nname: Page\ntype: resource_template\n{PLUGIN_HEAD}{asks_all}primitiveSchema: {{uriTemplate: 'page://{{id}}'}}\n{PLUGIN_RUNTIME}"
            ),
        ),
        (
            "advice",
            format!(
                "id: advice\nname: Advice\ntype: prompt\n{PLUGIN_HEAD}{asks_all}primitiveSchema: {{arguments: [{{name: topic, required: true}}, {{name: tone}}]}}\n{PLUGIN_RUNTIME}"
            ),
        ),
    ];
    rows.into_iter()
        .chain(question_sources())
        .map(|(file, text)| Source { path: format!("plugins/{file}.yaml"), text })
        .chain([Source { path: "pay/server.yaml".into(), text: PAY_SERVER.into() }])
        .collect()
}

/// Returns the specs of the plugins' questions.
fn question_sources() -> [(&'static str, String); 4] {
    [
        (
            "name",
            "id: plugins.name\nname: A name\ntype: elicitation\nversion: 1.0.0\nowner: t@example.com\n\
             primitiveSchema: {message: Which name?, fields: [{name: name, type: string, required: true}]}\n"
                .to_owned(),
        ),
        (
            "card",
            "id: plugins.card\nname: A card\ntype: elicitation\nversion: 1.0.0\nowner: t@example.com\n\
             primitiveSchema: {message: Enter your card., url: 'https://pay.example.com/cards'}\n"
                .to_owned(),
        ),
        (
            "label",
            "id: plugins.label\nname: Label\ntype: delegate\nversion: 1.0.0\nowner: t@example.com\nsummary: Labels.\n\
             primitiveSchema: {sampling: {systemPrompt: Answer in JSON., maxTokens: 64}}\n"
                .to_owned(),
        ),
        (
            "roots",
            "id: plugins.roots\nname: Roots\ntype: delegate\nversion: 1.0.0\nowner: t@example.com\nsummary: The roots.\n\
             primitiveSchema: {roots: {}}\n"
                .to_owned(),
        ),
    ]
}

fn spec(id: &str, name: &str, mutation: &str, extra: &str) -> String {
    format!(
        "id: {id}\nname: {name}\ntype: tool\nversion: 1.0.0\nowner: t@example.com\nsummary: A tool.\ntags: [test]\n\
         mutation: {mutation}\nprimitiveSchema:\n  input_schema:\n    type: object\n    properties:\n      \
         message: {{type: string, default: none}}\n      to: {{type: integer, default: 1}}\n      \
         delayMs: {{type: integer, default: 0}}\n{extra}"
    )
}

/// A tool with a user interface (MCP Apps), and its page.
fn app_sources() -> Vec<Source> {
    let head = "version: 1.0.0\nowner: t@example.com\nsummary: The time.\nsecurity: {riskClass: low}\n";
    let server = "apiVersion: asp/v1\nname: apps\ntitle: Apps\ndescription: For tests.\nversion: 1.0.0\n\
         protocols: [mcp]\nsessions: both\ndefaultExposure: allow\nauth: {schemes: [jwt], issuers: [dev]}\n\
         primitives: [{ref: apps/apps.clock}, {ref: apps/apps.view}]\n";
    let clock = format!(
        "id: apps.clock\nname: Clock\ntype: tool\nmutation: read_only\n{head}\
         _meta: {{ui: {{resourceUri: 'ui://clock/view.html'}}, ui/resourceUri: 'ui://clock/view.html'}}\n\
         primitiveSchema: {{input_schema: {{type: object}}}}\nruntime: {{mode: builtin, entrypoint: clock}}\n"
    );
    let view = format!(
        "id: apps.view\nname: View\ntype: resource\n{head}\
         _meta: {{ui: {{prefersBorder: true}}}}\n\
         primitiveSchema:\n  uri: 'ui://clock/view.html'\n  mimeType: 'text/html;profile=mcp-app'\n  contents:\n  \
         - text: '<p>12:00</p>'\n    _meta: {{ui: {{csp: {{connectDomains: ['https://time.example.com']}}}}}}\n"
    );
    [("server", server.to_owned()), ("clock", clock), ("view", view)]
        .map(|(file, text)| Source { path: format!("apps/{file}.yaml"), text })
        .into()
}

/// A server whose tools can be searched for.
fn searched_sources() -> Vec<Source> {
    let server = "apiVersion: asp/v1\nname: shop\ntitle: Shop\ndescription: For tests.\nversion: 1.0.0\nprotocols: [mcp, rest]\n\
                  sessions: both\ndefaultExposure: allow\nauth: {schemes: [jwt], issuers: [dev]}\n\
                  primitives: [{ref: shop/find}, {ref: shop/create_invoice}, {ref: shop/list_invoices}, {ref: shop/send_mail}]\n";
    let find = "id: find\nname: Find tools\ntype: tool\nversion: 1.0.0\nowner: t@example.com\nsummary: Finds tools by words.\n\
                tags: [test]\nmutation: read_only\nprimitiveSchema:\n  input_schema:\n    type: object\n    required: [query]\n    \
                properties: {query: {type: string, maxLength: 1000}, limit: {type: integer}, tokenBudget: {type: integer}}\n\
                security: {riskClass: low}\nruntime: {mode: builtin, entrypoint: search_tools}\n";
    let low = "security: {riskClass: low}\nruntime: {mode: builtin, entrypoint: echo}\n";
    let tool = |id: &str, name: &str| spec(id, name, "read_only", low);
    [
        ("server", server.to_owned()),
        ("find", find.to_owned()),
        ("create_invoice", tool("create_invoice", "Create an invoice")),
        ("list_invoices", tool("list_invoices", "List invoices")),
        ("send_mail", tool("send_mail", "Send mail")),
    ]
    .into_iter()
    .map(|(file, text)| Source { path: format!("shop/{file}.yaml"), text })
    .collect()
}

/// The repository's servers and the tests' own.
pub(crate) fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../primitives");
    let mut sources = read_dir(&root).unwrap();
    sources.push(Source { path: "policy/server.yaml".into(), text: TEST_SERVER.into() });
    let echo = "runtime: {mode: builtin, entrypoint: echo}\n";
    let low = "security: {riskClass: low}\n";
    for (file, text) in [
        ("open", spec("policy.open", "Open", "read_only", &format!("{low}{echo}"))),
        (
            "scoped",
            spec(
                "policy.scoped",
                "Scoped",
                "read_only",
                &format!(
                    "security: {{riskClass: low, auth: {{type: jwt, scopes: ['x:read', 'x:write']}}}}\n{echo}"
                ),
            ),
        ),
        ("wipe", spec("policy.wipe", "Wipe", "destructive", &format!("{low}{echo}"))),
        (
            "once",
            spec(
                "policy.once",
                "Once",
                "non_idempotent",
                &format!("{low}runtime: {{mode: builtin, entrypoint: clock}}\n"),
            ),
        ),
        (
            "few",
            spec(
                "policy.few",
                "Few",
                "read_only",
                "security: {riskClass: low, rateLimitMax: {invocationCount: 2, timeUnitCount: 3600, timeUnit: seconds, \
                 concurrentInvocations: 5}}\nruntime: {mode: builtin, entrypoint: echo}\n",
            ),
        ),
    ] {
        sources.push(Source { path: format!("policy/{file}.yaml"), text });
    }
    sources.extend(plugin_sources());
    sources.extend(app_sources());
    sources.extend(searched_sources());
    sources
}
