//! The provider of the accounts, a realm of its own, and the server whose tools need them.

use asp_e2e::keycloak::Keycloak;
use serde_json::{Value, json};

use super::super::LANGUAGES;

/// Realm of the provider.
pub(super) const HUB: &str = "hub";
pub(super) const HUB_CLIENT: &str = "asp";
pub(super) const HUB_SECRET: &str = "the-secret-of-the-hubs-client";
pub(super) const PASSWORD: &str = "wonderland";

/// The client at the company's issuer, as which every client logs in.
pub(super) fn login_client(edge: &str) -> Value {
    json!({
        "clientId": "mcp", "publicClient": true, "standardFlowEnabled": true,
        "redirectUris": [format!("{edge}/crm/oauth/callback")],
        "attributes": { "pkce.code.challenge.method": "S256" }, "defaultClientScopes": ["asp"],
    })
}

/// The provider's realm, whose tokens are for the service `crm`.
pub(super) fn hub(edge: &str) -> Value {
    let mapper = |name: &str, kind: &str, config: Value| json!({ "name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": config });
    let user = json!({ "claim.name": "preferred_username", "jsonType.label": "String", "user.attribute": "username",
                       "access.token.claim": "true" });
    let audience = |name: &str| json!({ "included.custom.audience": name, "access.token.claim": "true" });
    json!({
        "realm": HUB, "enabled": true, "sslRequired": "none", "accessTokenLifespan": 3_600,
        "clients": [{
            "clientId": HUB_CLIENT, "secret": HUB_SECRET, "standardFlowEnabled": true,
            "redirectUris": [format!("{edge}/account/callback")],
            "attributes": { "pkce.code.challenge.method": "S256" },
            "protocolMappers": [
                mapper("crm", "oidc-audience-mapper", audience("crm")),
                // A client may only ask about tokens that are for it too.
                mapper("own", "oidc-audience-mapper", audience(HUB_CLIENT)),
                mapper("sub", "oidc-sub-mapper", json!({ "access.token.claim": "true" })),
                mapper("user", "oidc-usermodel-attribute-mapper", user),
            ],
        }],
        "users": [{
            "username": "alice-at-hub", "enabled": true, "firstName": "Alice", "lastName": "L",
            "email": "alice@hub.example", "emailVerified": true,
            "credentials": [{ "type": "password", "value": PASSWORD }],
        }],
    })
}

pub(super) fn issuer(keycloak: &Keycloak) -> Value {
    json!({
        "iss": keycloak.issuer(), "orgs": ["acme"], "typ": ["JWT"], "audiences": ["asp"],
        "claims": { "user": "preferred_username" }, "defaults": { "org": "acme" }, "login": { "clientId": "mcp" },
    })
}

/// The provider, whose tokens are issued by way of `tokens`, and may be sent to the services at these ports.
pub(super) fn provider(keycloak: &Keycloak, tokens: &str, ports: &[u64]) -> Value {
    let origins: Vec<String> = ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect();
    json!({
        "discover": keycloak.issuer_of(HUB), "clientSecret": HUB_SECRET,
        "document": {
            "title": "Hub", "clientId": HUB_CLIENT, "for": ["crm/*"], "origins": origins,
            "tokenEndpoint": format!("{tokens}/realms/{HUB}/protocol/openid-connect/token"),
        },
    })
}

/// A server with a tool for each language, whose services are behind a linked account.
pub(super) fn server() -> Value {
    let file = |name: &str, text: &str| json!({ "path": format!("crm/{name}.yaml"), "text": text });
    let refs: Vec<String> = LANGUAGES.iter().map(|language| format!("{{ref: crm/crm.{language}}}")).collect();
    let server = format!(
        "apiVersion: asp/v1\nname: crm\ndescription: Customers.\nprotocols: [mcp, a2a]\nsessions: both\n\
         defaultExposure: allow\nauth: {{schemes: [jwt], issuers: [kc]}}\nprimitives: [{}]\n",
        refs.join(", ")
    );
    let mut files = vec![file("server", &server)];
    for language in LANGUAGES {
        let tool = format!(
            "id: crm.{language}\nname: who-{language}\ntype: tool\nversion: 1.0.0\nowner: crm@acme.example\n\
             summary: Says who calls.\nmutation: read_only\n\
             exposure: {{mcp: {{tool: {{name: who_{language}}}}}, a2a: {{skill: {{id: who_{language}}}}}}}\n\
             primitiveSchema: {{input_schema: {{type: object}}}}\n\
             runtime: {{mode: proxy, http: {{url: \"http://{language}.internal/who\"}}, auth: {{linked: hub}}}}\n\
             security: {{riskClass: low}}\n"
        );
        files.push(file(language, &tool));
    }
    json!({ "files": files })
}
