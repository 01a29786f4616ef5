//! What the company's Keycloak and its servers `notes` and `memos` are made of.

use serde_json::{Value, json};

pub(super) const GATEWAY_SECRET: &str = "gateways-secret";
/// The realm where everybody may register a client.
pub(super) const OPEN: &str = "open";
/// Secret of the client `ci`, whose service account may deploy `memos`.
pub(super) const CI_SECRET: &str = "cis-secret";
/// Algorithms that clients of the realm `acme` have their tokens signed with, beside RS256, and whether they are taken.
pub(super) const ALGORITHMS: [(&str, bool); 9] = [
    ("RS384", true),
    ("RS512", true),
    ("ES256", true),
    ("ES384", true),
    ("EdDSA", true),
    ("ES512", false),
    ("PS256", false),
    ("PS512", false),
    ("HS256", false),
];

fn mapper(name: &str, kind: &str, config: Value) -> Value {
    let mut config = config;
    config["access.token.claim"] = json!("true");
    config["introspection.token.claim"] = json!("true");
    json!({ "name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": config })
}

/// What every token says.
fn basics() -> Vec<Value> {
    let text = |claim: &str| json!({ "claim.name": claim, "jsonType.label": "String" });
    let mut roles = text("realm_access.roles");
    roles["multivalued"] = json!("true");
    let mut user = text("preferred_username");
    user["user.attribute"] = json!("username");
    vec![
        mapper("aud", "oidc-audience-mapper", json!({ "included.custom.audience": "asp" })),
        mapper("sub", "oidc-sub-mapper", json!({})),
        mapper("roles", "oidc-usermodel-realm-role-mapper", roles),
        mapper("user", "oidc-usermodel-attribute-mapper", user),
    ]
}

fn person(name: &str, roles: &[&str]) -> Value {
    json!({
        "username": name, "enabled": true, "firstName": name, "lastName": "L", "email": format!("{name}@acme.example"),
        "emailVerified": true, "credentials": [{ "type": "password", "value": "wonderland" }], "realmRoles": roles,
    })
}

fn scope(name: &str, in_token: bool, mappers: &[Value]) -> Value {
    json!({
        "name": name, "protocol": "openid-connect", "protocolMappers": mappers,
        "attributes": { "include.in.token.scope": in_token.to_string() },
    })
}

/// A client that gets tokens for a name and a password.
fn direct(id: &str, attributes: &Value) -> Value {
    json!({
        "clientId": id, "publicClient": true, "directAccessGrantsEnabled": true, "attributes": attributes,
        "defaultClientScopes": ["asp"], "optionalClientScopes": ["notes:write"],
    })
}

/// A client with an account of its own (RFC 6749 section 4.4).
fn service(id: &str, secret: &str) -> Value {
    json!({
        "clientId": id, "secret": secret, "serviceAccountsEnabled": true, "standardFlowEnabled": false,
        "defaultClientScopes": ["asp"],
    })
}

/// A realm in which nobody may register clients.
pub(super) fn acme() -> Value {
    let mut mappers = basics();
    mappers.push(mapper("gateway", "oidc-audience-mapper", json!({ "included.client.audience": "gateway" })));
    let others =
        mapper("aud", "oidc-audience-mapper", json!({ "included.custom.audience": "another-service" }));
    let mut elsewhere = direct("elsewhere", &json!({}));
    elsewhere["defaultClientScopes"] = json!([]);
    elsewhere["protocolMappers"] = json!([others]);
    let mut gateway = service("gateway", GATEWAY_SECRET);
    gateway["defaultClientScopes"] = json!([]);
    let mut clients = vec![
        gateway,
        service("ci", CI_SECRET),
        json!({ "clientId": "cli", "publicClient": true, "standardFlowEnabled": false,
                "attributes": { "oauth2.device.authorization.grant.enabled": "true" },
                "defaultClientScopes": ["asp"] }),
        direct("direct", &json!({})),
        direct("brief", &json!({ "access.token.lifespan": "1" })),
        direct("long", &json!({ "access.token.lifespan": "172800" })),
        elsewhere,
    ];
    clients
        .extend(ALGORITHMS.map(|(alg, _)| direct(alg, &json!({ "access.token.signed.response.alg": alg }))));
    let ci = json!({ "username": "service-account-ci", "enabled": true, "serviceAccountClientId": "ci",
                     "realmRoles": ["deployers"] });
    json!({
        "realm": "acme", "enabled": true, "sslRequired": "none", "accessTokenLifespan": 300,
        // Else no token would live longer than a session that nobody uses.
        "ssoSessionIdleTimeout": 1_000_000, "ssoSessionMaxLifespan": 1_000_000,
        "roles": { "realm": [{ "name": "staff" }, { "name": "deployers" }] },
        "clientScopes": [scope("asp", false, &mappers), scope("notes:write", true, &[])],
        "defaultDefaultClientScopes": ["asp"],
        "clients": clients,
        "users": [person("alice", &["staff"]), ci],
    })
}

/// A realm in which whoever comes from this machine may register a client.
pub(super) fn open() -> Value {
    let policy = |provider: &str, config: Value| json!({ "name": provider, "providerId": provider, "subType": "anonymous", "config": config });
    let hosts = json!({
        "host-sending-registration-request-must-match": ["true"], "client-uris-must-match": ["true"],
        "trusted-hosts": ["127.0.0.1"],
    });
    let policies = [
        policy("trusted-hosts", hosts),
        policy("max-clients", json!({ "max-clients": ["50"] })),
        policy("consent-required", json!({})),
    ];
    json!({
        "realm": OPEN, "enabled": true, "sslRequired": "none", "accessTokenLifespan": 3,
        "roles": { "realm": [{ "name": "staff" }, { "name": "writers" }, { "name": "offline_access" }] },
        "clientScopes": [scope("asp", false, &basics()), scope("notes:write", true, &[])],
        // Who has not the role is not given the scope, whatever his client asks for.
        "scopeMappings": [{ "clientScope": "notes:write", "roles": ["writers"] }],
        "defaultDefaultClientScopes": ["asp"], "defaultOptionalClientScopes": ["notes:write"],
        "clients": [direct("direct", &json!({ "access.token.lifespan": "300" }))],
        "users": [person("alice", &["staff", "writers"]), person("bob", &["staff", "offline_access"])],
        "components": { "org.keycloak.services.clientregistration.policy.ClientRegistrationPolicy": policies },
    })
}

/// The one client that MCP clients log in as; its tokens end soon.
pub(super) fn client(callback: &str) -> Value {
    json!({
        "clientId": "mcp", "publicClient": true, "standardFlowEnabled": true, "redirectUris": [callback],
        "attributes": { "pkce.code.challenge.method": "S256", "access.token.lifespan": "3" },
        "defaultClientScopes": ["asp"], "optionalClientScopes": ["notes:write"],
    })
}

/// A server for signed tokens, of which one tool wants a scope.
pub(super) fn notes() -> Value {
    server("notes", "kc", "jwt")
}

/// The same for tokens that the issuer is asked about.
pub(super) fn opaque_notes() -> Value {
    server("notes", "kc", "opaque")
}

/// The same for tokens of the realm [`OPEN`].
pub(super) fn memos() -> Value {
    server("memos", OPEN, "jwt")
}

fn server(name: &str, issuer: &str, scheme: &str) -> Value {
    let server = format!(
        "apiVersion: asp/v1\nname: {name}\ndescription: Notes of a company.\nprotocols: [mcp]\nsessions: both\n\
         defaultExposure: allow\nauth: {{schemes: [{scheme}], issuers: [{issuer}]}}\n\
         primitives: [{{ref: {name}/{name}.hello}}, {{ref: {name}/{name}.write}}]\n"
    );
    let tool = |id: &str, scopes: &str| {
        format!(
            "id: {name}.{id}\nname: {id}\ntype: tool\nversion: 1.0.0\nowner: notes@acme.example\nsummary: Says it again.\n\
             mutation: read_only\nexposure: {{mcp: {{tool: {{name: {id}}}}}}}\nsecurity: {{auth: {{type: {scheme}, scopes: [{scopes}]}}}}\n\
             primitiveSchema: {{input_schema: {{type: object, properties: {{message: {{type: string}}}}, required: [message]}}}}\n\
             runtime: {{mode: builtin, entrypoint: echo}}\n"
        )
    };
    let file = |path: &str, text: String| json!({ "path": format!("{name}/{path}"), "text": text });
    json!({ "files": [
        file("server.yaml", server),
        file("hello.yaml", tool("hello", "")),
        file("write.yaml", tool("write", "notes:write")),
    ] })
}
