//! Providers that the platform knows: all but the client, and who may use it.

use std::collections::BTreeMap;

use super::provider::{ClientAuth, LinkProvider, Revocation, RevocationStyle};

/// A provider that needs only a client.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    pub name: &'static str,
    pub document: PresetDocument,
}

/// Values of a preset; see the members of [`LinkProvider`].
#[derive(Clone, Copy, Debug)]
pub struct PresetDocument {
    title: &'static str,
    authorization_endpoint: &'static str,
    token_endpoint: &'static str,
    revocation: Option<(&'static str, RevocationStyle)>,
    client_auth: ClientAuth,
    scope_separator: &'static str,
    pkce: bool,
    scopes: &'static [&'static str],
    parameters: &'static [(&'static str, &'static str)],
    assumed_life_seconds: Option<u32>,
    origins: &'static [&'static str],
}

/// Values that most presets share.
const COMMON: PresetDocument = PresetDocument {
    title: "",
    authorization_endpoint: "",
    token_endpoint: "",
    revocation: None,
    client_auth: ClientAuth::Post,
    scope_separator: " ",
    pkce: true,
    scopes: &[],
    parameters: &[],
    assumed_life_seconds: None,
    origins: &[],
};

/// All presets.
pub const PRESETS: [Preset; 6] = [
    Preset {
        name: "github",
        document: PresetDocument {
            title: "GitHub",
            authorization_endpoint: "https://github.com/login/oauth/authorize",
            token_endpoint: "https://github.com/login/oauth/access_token",
            revocation: Some((
                "https://api.github.com/applications/{client_id}/token",
                RevocationStyle::Delete,
            )),
            origins: &["https://api.github.com", "https://api.githubcopilot.com"],
            ..COMMON
        },
    },
    Preset {
        name: "google",
        document: PresetDocument {
            title: "Google",
            authorization_endpoint: "https://accounts.google.com/o/oauth2/v2/auth",
            token_endpoint: "https://oauth2.googleapis.com/token",
            revocation: Some(("https://oauth2.googleapis.com/revoke", RevocationStyle::Rfc7009)),
            // Without both there is no refresh token after the first consent.
            parameters: &[("access_type", "offline"), ("prompt", "consent")],
            origins: &[
                "https://www.googleapis.com",
                "https://gmail.googleapis.com",
                "https://docs.googleapis.com",
                "https://sheets.googleapis.com",
                "https://people.googleapis.com",
            ],
            ..COMMON
        },
    },
    Preset {
        name: "microsoft",
        document: PresetDocument {
            title: "Microsoft",
            authorization_endpoint: "https://login.microsoftonline.com/common/oauth2/v2.0/authorize",
            token_endpoint: "https://login.microsoftonline.com/common/oauth2/v2.0/token",
            scopes: &["offline_access"],
            origins: &["https://graph.microsoft.com"],
            ..COMMON
        },
    },
    Preset {
        name: "atlassian",
        document: PresetDocument {
            title: "Atlassian",
            authorization_endpoint: "https://auth.atlassian.com/authorize",
            token_endpoint: "https://auth.atlassian.com/oauth/token",
            scopes: &["offline_access"],
            parameters: &[("audience", "api.atlassian.com"), ("prompt", "consent")],
            origins: &["https://api.atlassian.com"],
            ..COMMON
        },
    },
    Preset {
        name: "slack",
        document: PresetDocument {
            title: "Slack",
            authorization_endpoint: "https://slack.com/oauth/v2_user/authorize",
            token_endpoint: "https://slack.com/api/oauth.v2.user.access",
            revocation: Some(("https://slack.com/api/auth.revoke", RevocationStyle::Bearer)),
            scope_separator: ",",
            origins: &["https://slack.com", "https://mcp.slack.com"],
            ..COMMON
        },
    },
    Preset {
        name: "salesforce",
        document: PresetDocument {
            title: "Salesforce",
            authorization_endpoint: "https://login.salesforce.com/services/oauth2/authorize",
            token_endpoint: "https://login.salesforce.com/services/oauth2/token",
            revocation: Some((
                "https://login.salesforce.com/services/oauth2/revoke",
                RevocationStyle::Rfc7009,
            )),
            scopes: &["refresh_token"],
            // Its answers name no expiry; sessions last two hours unless an administrator changes that.
            assumed_life_seconds: Some(3_600),
            // The instance of a company is named with `--origin`.
            origins: &["https://login.salesforce.com"],
            ..COMMON
        },
    },
];

impl Preset {
    /// Returns the preset of this name.
    pub fn parse(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|preset| preset.name == name)
    }
}

impl PresetDocument {
    /// Returns a document without a client, which no primitive may use yet.
    pub fn provider(&self) -> LinkProvider {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let revocation =
            self.revocation.map(|(endpoint, style)| Revocation { endpoint: endpoint.into(), style });
        let parameters: BTreeMap<String, String> =
            self.parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        LinkProvider {
            title: self.title.into(),
            client_id: String::new(),
            authorization_endpoint: self.authorization_endpoint.into(),
            token_endpoint: self.token_endpoint.into(),
            revocation,
            issuer: None,
            iss_parameter: false,
            client_auth: self.client_auth,
            scope_separator: self.scope_separator.into(),
            pkce: self.pkce,
            scopes: texts(self.scopes),
            parameters,
            assumed_life_seconds: self.assumed_life_seconds,
            origins: texts(self.origins),
            primitives: Vec::new(),
            orgs: vec!["*".into()],
            ttl_days: 90,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_needs_only_a_client() {
        for preset in PRESETS {
            let provider = LinkProvider { client_id: "c".into(), ..preset.document.provider() };
            assert_eq!(provider.faults(), Vec::<String>::new(), "{}", preset.name);
            let text = serde_json::to_string(&provider).unwrap();
            assert_eq!(serde_json::from_str::<LinkProvider>(&text).unwrap(), provider, "{text}");
            assert!(Preset::parse(preset.name).is_some());
        }
        assert!(Preset::parse("gitlab").is_none());
    }
}
