//! The hybrid card: 1.0 with the top-level fields of 0.3.

use asp_json::Json;

use super::schema::prune;
use crate::json::writer::{self, Writer};
use crate::version::Generation;

/// Protocol binding of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    JsonRpc,
    Grpc,
    Rest,
}

impl Binding {
    /// Returns the name that cards of both versions have for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Binding::JsonRpc => "JSONRPC",
            Binding::Grpc => "GRPC",
            Binding::Rest => "HTTP+JSON",
        }
    }

    /// Returns the binding of a name.
    pub fn parse(name: &str) -> Option<Binding> {
        [Binding::JsonRpc, Binding::Grpc, Binding::Rest].into_iter().find(|binding| binding.as_str() == name)
    }
}

/// An address at which an agent speaks one binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub binding: Binding,
    /// A URL; for gRPC host and port, without a scheme.
    pub url: String,
    pub generations: Vec<Generation>,
}

/// The organization behind an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    pub organization: String,
    pub url: String,
}

/// Abilities of an agent apart from its skills.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capabilities {
    pub streaming: bool,
    pub push_notifications: bool,
    pub extended_card: bool,
    /// `AgentExtension` objects.
    pub extensions: Vec<Json>,
}

/// Way in which a client authenticates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecurityScheme {
    ApiKey {
        /// `header`, `query` or `cookie`.
        location: String,
        name: String,
    },
    /// An HTTP authentication scheme, such as `Bearer`.
    Http {
        scheme: String,
        bearer_format: Option<String>,
    },
    Oauth2 {
        flow: OauthFlow,
        /// Metadata of the authorization server (RFC 8414).
        metadata_url: Option<String>,
    },
    OpenIdConnect {
        url: String,
    },
    MutualTls,
}

/// A flow of OAuth 2.0; 1.0 has one in a scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OauthFlow {
    AuthorizationCode {
        authorization_url: String,
        token_url: String,
        /// Names and descriptions.
        scopes: Vec<(String, String)>,
        pkce_required: bool,
    },
    ClientCredentials {
        token_url: String,
        scopes: Vec<(String, String)>,
    },
}

/// Schemes that a client needs together, each with its scopes.
pub type Requirement = Vec<(String, Vec<String>)>;

/// Content of a card.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CardInput {
    pub name: String,
    /// The name, if it is empty.
    pub description: String,
    /// Version of the agent.
    pub version: String,
    pub documentation_url: Option<String>,
    pub icon_url: Option<String>,
    pub provider: Option<Provider>,
    /// Interfaces in the order of preference.
    pub interfaces: Vec<Interface>,
    pub capabilities: Capabilities,
    pub security_schemes: Vec<(String, SecurityScheme)>,
    /// Alternatives; none for an agent that anybody may call.
    pub security_requirements: Vec<Requirement>,
    pub default_input_modes: Vec<String>,
    pub default_output_modes: Vec<String>,
    /// `AgentSkill` objects; what is empty in them is left out.
    pub skills: Vec<Json>,
}

/// Builds the card for both versions.
pub fn build(input: &CardInput) -> Json {
    Json::part(writer::object(|writer| {
        writer.string("name", &input.name);
        let description = if input.description.is_empty() { &input.name } else { &input.description };
        writer.string("description", description);
        writer.string("version", &input.version);
        write_interfaces(writer, &input.interfaces);
        writer.option("documentationUrl", input.documentation_url.as_deref().filter(|url| !url.is_empty()));
        writer.option("iconUrl", input.icon_url.as_deref().filter(|url| !url.is_empty()));
        if let Some(provider) = &input.provider {
            writer.object("provider", |writer| {
                writer.word("organization", &provider.organization);
                writer.word("url", &provider.url);
            });
        }
        write_capabilities(writer, &input.capabilities);
        if !input.security_schemes.is_empty() {
            writer.object("securitySchemes", |writer| {
                for (name, scheme) in &input.security_schemes {
                    writer.object(name, |writer| write_scheme(writer, scheme));
                }
            });
        }
        write_requirements(writer, &input.security_requirements);
        writer.strings("defaultInputModes", &input.default_input_modes);
        writer.strings("defaultOutputModes", &input.default_output_modes);
        write_values(writer, "skills", &input.skills);
        write_v03(writer, input);
    }))
}

/// Writes the interfaces: those of 1.0, then those of 0.3, since a client takes the first one that it can speak.
fn write_interfaces(writer: &mut Writer, interfaces: &[Interface]) {
    let of = |generation: Generation| {
        let speaks = move |interface: &&Interface| interface.generations.contains(&generation);
        interfaces.iter().filter(speaks).map(move |interface| (interface, generation))
    };
    let all: Vec<(&Interface, Generation)> = of(Generation::V10).chain(of(Generation::V03)).collect();
    writer.objects("supportedInterfaces", &all, |writer, (interface, generation)| {
        writer.string("url", &interface.url);
        writer.string("protocolBinding", interface.binding.as_str());
        writer.string("protocolVersion", generation.as_str());
    });
}

/// Writes the fields that only 0.3 has, if an interface speaks it.
fn write_v03(writer: &mut Writer, input: &CardInput) {
    let old: Vec<&Interface> = input
        .interfaces
        .iter()
        .filter(|interface| interface.generations.contains(&Generation::V03))
        .collect();
    let Some(first) = old.first() else { return };
    writer.string("protocolVersion", Generation::V03.as_str());
    writer.string("url", &first.url);
    writer.string("preferredTransport", first.binding.as_str());
    writer.objects("additionalInterfaces", &old, |writer, interface| {
        writer.string("url", &interface.url);
        writer.string("transport", interface.binding.as_str());
    });
    writer.flag("supportsAuthenticatedExtendedCard", input.capabilities.extended_card);
    writer.objects("security", &input.security_requirements, |writer, requirement| {
        for (name, scopes) in requirement {
            writer.all_strings(name, scopes);
        }
    });
}

fn write_capabilities(writer: &mut Writer, capabilities: &Capabilities) {
    writer.object("capabilities", |writer| {
        writer.scalar("streaming", Some(capabilities.streaming));
        writer.scalar("pushNotifications", Some(capabilities.push_notifications));
        writer.flag("extendedAgentCard", capabilities.extended_card);
        write_values(writer, "extensions", &capabilities.extensions);
    });
}

/// Writes values without what is empty in them; every other part keeps its text.
fn write_values(writer: &mut Writer, name: &str, values: &[Json]) {
    let texts: Vec<String> =
        values.iter().map(|value| value.changed_to(prune(value.view())).text().to_owned()).collect();
    if !texts.is_empty() {
        writer.raw(name, &format!("[{}]", texts.join(",")));
    }
}

fn write_requirements(writer: &mut Writer, requirements: &[Requirement]) {
    writer.objects("securityRequirements", requirements, |writer, requirement| {
        writer.object("schemes", |writer| {
            for (name, scopes) in requirement {
                writer.object(name, |writer| writer.strings("list", scopes));
            }
        });
    });
}

/// Writes a scheme in the forms of both versions: the member of 1.0, and the members of 0.3 with `type`.
fn write_scheme(writer: &mut Writer, scheme: &SecurityScheme) {
    let (name, kind) = match scheme {
        SecurityScheme::ApiKey { .. } => ("apiKeySecurityScheme", "apiKey"),
        SecurityScheme::Http { .. } => ("httpAuthSecurityScheme", "http"),
        SecurityScheme::Oauth2 { .. } => ("oauth2SecurityScheme", "oauth2"),
        SecurityScheme::OpenIdConnect { .. } => ("openIdConnectSecurityScheme", "openIdConnect"),
        SecurityScheme::MutualTls => ("mtlsSecurityScheme", "mutualTLS"),
    };
    writer.object(name, |writer| write_scheme_members(writer, scheme, "location"));
    writer.string("type", kind);
    write_scheme_members(writer, scheme, "in");
}

fn write_scheme_members(writer: &mut Writer, scheme: &SecurityScheme, location_name: &str) {
    match scheme {
        SecurityScheme::ApiKey { location, name } => {
            writer.string(location_name, location);
            writer.string("name", name);
        }
        SecurityScheme::Http { scheme, bearer_format } => {
            writer.string("scheme", scheme);
            writer.option("bearerFormat", bearer_format.as_deref());
        }
        SecurityScheme::Oauth2 { flow, metadata_url } => {
            writer.object("flows", |writer| write_flow(writer, flow));
            writer.option("oauth2MetadataUrl", metadata_url.as_deref());
        }
        SecurityScheme::OpenIdConnect { url } => writer.string("openIdConnectUrl", url),
        // An empty object would not be signed by the SDKs.
        SecurityScheme::MutualTls => writer.string("description", "TLS client certificate"),
    }
}

fn write_flow(writer: &mut Writer, flow: &OauthFlow) {
    let write_scopes = |writer: &mut Writer, scopes: &[(String, String)]| {
        if !scopes.is_empty() {
            writer.object("scopes", |writer| {
                for (name, description) in scopes {
                    writer.string(name, description);
                }
            });
        }
    };
    match flow {
        OauthFlow::AuthorizationCode { authorization_url, token_url, scopes, pkce_required } => {
            writer.object("authorizationCode", |writer| {
                writer.string("authorizationUrl", authorization_url);
                writer.string("tokenUrl", token_url);
                write_scopes(writer, scopes);
                writer.flag("pkceRequired", *pkce_required);
            });
        }
        OauthFlow::ClientCredentials { token_url, scopes } => {
            writer.object("clientCredentials", |writer| {
                writer.string("tokenUrl", token_url);
                write_scopes(writer, scopes);
            });
        }
    }
}

#[cfg(test)]
mod tests;
