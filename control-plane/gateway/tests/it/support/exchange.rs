//! An issuer, of whatever URL, that gives tokens for services in exchange for its callers' own.

use std::collections::HashMap;

use asp_identity::issuers::IssuerDeps;
use asp_identity::issuers::credentials::{Credential, Kind};
use asp_proto::snapshot::service_auth::Kind as Way;
use asp_proto::snapshot::{
    ExchangedToken, GatewaySnapshot, IssuerAccess, Primitive, ServiceAudience, ServiceAuth, TokenExchange,
};

/// The service's audience at the issuer.
const AUDIENCE: &str = "crm";
/// The operator's credential at the issuer.
const OWN: &str = "own";

/// The primitive shows its service a token of its caller's issuer.
pub(crate) fn shows_exchanged(primitive: &mut Primitive) {
    let wanted = ExchangedToken { audience: AUDIENCE.into(), scopes: Vec::new() };
    primitive.service_auth = Some(ServiceAuth { kind: Some(Way::Exchange(wanted)) });
}

/// Tokens of the issuer at `url` may go to these origins.
pub(crate) fn let_exchange(snapshot: &mut GatewaySnapshot, url: &str, origins: Vec<String>) {
    let audiences = vec![ServiceAudience { name: AUDIENCE.into(), origins, primitives: vec!["*".into()] }];
    let exchange = TokenExchange { url: format!("{url}/token"), credential: OWN.into(), audiences };
    snapshot.issuer_access.push(IssuerAccess {
        issuer: "dev".into(),
        introspection: None,
        login: None,
        exchange: Some(exchange),
    });
}

/// Returns the dependencies of a gateway that asks the issuer at `url`.
pub(crate) fn asking(url: &str) -> IssuerDeps {
    let kind = Kind::Basic { user: "gw".into(), password: "own".into() };
    let own = Credential { origin: url.to_owned(), primitives: Vec::new(), kind };
    let credentials = HashMap::from([(OWN.to_owned(), own)]);
    IssuerDeps { credentials, origins: vec![url.to_owned()], ..IssuerDeps::default() }
}
