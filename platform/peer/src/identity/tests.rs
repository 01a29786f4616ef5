use rcgen::{CertificateParams, KeyPair, SanType};

use super::*;

fn certificate(sans: &[SanType]) -> Vec<u8> {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.subject_alt_names = sans.to_vec();
    parameters.self_signed(&key).unwrap().der().to_vec()
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

#[test]
fn a_certificate_names_domain_role_name_and_addresses() {
    let ip: IpAddr = "192.0.2.7".parse().unwrap();
    let v6: IpAddr = "2001:db8::7".parse().unwrap();
    let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
    let der = certificate(&[
        uri("spiffe://example.org/asp/gateway/gw-0"),
        SanType::IpAddress(ip),
        SanType::IpAddress(v6),
        dns("gw-0.asp.svc"),
        dns("*.asp.svc"),
    ]);
    let identity = Identity::of(&der).unwrap();
    assert_eq!(
        (identity.domain.as_str(), identity.role, identity.name.as_str()),
        ("example.org", Role::Gateway, "gw-0")
    );
    assert!(identity.has_address(ip) && identity.has_address(v6));
    assert!(identity.has_address("::ffff:192.0.2.7".parse().unwrap()), "the same address, mapped");
    assert!(!identity.has_address("192.0.2.8".parse().unwrap()));
    assert_eq!(identity.dns_names().collect::<Vec<_>>(), ["gw-0.asp.svc"], "a wildcard is no address");
    assert_eq!(identity.to_string(), "spiffe://example.org/asp/gateway/gw-0");
}

#[test]
fn a_certificate_without_exactly_one_uri_names_nobody() {
    assert_eq!(Identity::of(&certificate(&[])), Err(IdentityError::Uris(0)));
    let dns = SanType::DnsName("gw-0.asp.svc".try_into().unwrap());
    assert_eq!(Identity::of(&certificate(&[dns])), Err(IdentityError::Uris(0)));
    let two = [uri("spiffe://example.org/asp/gateway/a"), uri("spiffe://example.org/asp/envoy/a")];
    assert_eq!(Identity::of(&certificate(&two)), Err(IdentityError::Uris(2)));
    let other = [uri("spiffe://example.org/asp/gateway/a"), uri("https://example.org/")];
    assert_eq!(Identity::of(&certificate(&other)), Err(IdentityError::Uris(2)));
    assert!(matches!(Identity::of(b"\x30\x03\x02\x01"), Err(IdentityError::Unreadable(_))));
    let mut trailing = certificate(&[uri("spiffe://example.org/asp/gateway/a")]);
    trailing.push(0);
    assert!(matches!(Identity::of(&trailing), Err(IdentityError::Unreadable(_))));
}

#[test]
fn a_malformed_uri_names_nobody() {
    let long = format!("spiffe://example.org/asp/gateway/{}", "n".repeat(MAX_PART + 1));
    for bad in [
        "",
        "spiffe://",
        "spiffe:///asp/gateway/a",
        "https://example.org/asp/gateway/a",
        "SPIFFE://example.org/asp/gateway/a",
        "spiffe://Example.org/asp/gateway/a",
        "spiffe://example.org:8443/asp/gateway/a",
        "spiffe://user@example.org/asp/gateway/a",
        "spiffe://example.org/asp/gateway",
        "spiffe://example.org/asp/gateway/",
        "spiffe://example.org/asp/gateway/a/b",
        "spiffe://example.org/asp/gateway/a/",
        "spiffe://example.org//asp/gateway/a",
        "spiffe://example.org/asp//a",
        "spiffe://example.org/asp/gateways/a",
        "spiffe://example.org/asp/Gateway/a",
        "spiffe://example.org/ASP/gateway/a",
        "spiffe://example.org/other/gateway/a",
        "spiffe://example.org/asp/envoy/../gateway/a",
        "spiffe://example.org/asp/gateway/..",
        "spiffe://example.org/asp/gateway/.",
        "spiffe://example.org/asp/gateway/%61",
        "spiffe://example.org/asp/gateway/a?role=control",
        "spiffe://example.org/asp/gateway/a#control",
        "spiffe://example.org/asp/gateway/a b",
        " spiffe://example.org/asp/gateway/a",
        &long,
    ] {
        assert!(matches!(Identity::of(&certificate(&[uri(bad)])), Err(IdentityError::Malformed(_))), "{bad}");
    }
}

#[test]
fn a_holder_is_admitted_in_its_own_domain_and_role() {
    let admit = |text: &str, roles: &[Role]| {
        Identity::of(&certificate(&[uri(text)])).unwrap().admit("example.org", roles)
    };
    assert!(admit("spiffe://example.org/asp/gateway/a", &[Role::Gateway]).is_ok());
    assert!(
        admit("spiffe://example.org/asp/control/a", &[Role::Gateway]).is_ok(),
        "a process with both roles"
    );
    for (text, roles) in [
        ("spiffe://example.org/asp/envoy/a", &[Role::Gateway] as &[Role]),
        ("spiffe://example.org/asp/runtime/a", &[Role::Gateway, Role::Envoy]),
        ("spiffe://example.org/asp/gateway/a", &[Role::Control]),
        ("spiffe://example.org/asp/control/a", &[Role::Envoy]),
        ("spiffe://example.org/asp/control/a", &[Role::Runtime]),
    ] {
        assert!(matches!(admit(text, roles), Err(IdentityError::Role { .. })), "{text}");
    }
    for text in ["spiffe://example.com/asp/gateway/a", "spiffe://sub.example.org/asp/gateway/a"] {
        assert!(matches!(admit(text, &[Role::Gateway]), Err(IdentityError::Domain { .. })), "{text}");
    }
}
