use super::*;

const ARN: &str = "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";

fn kms() -> AwsKms {
    let credentials = AwsCredentials {
        access_key: "AKIDEXAMPLE".into(),
        secret_key: "hunter2".into(),
        session_token: None,
    };
    AwsKms::open(KeyArn::parse(ARN).unwrap(), Some("http://127.0.0.1:9"), credentials).unwrap()
}

#[test]
fn a_key_is_named_by_its_arn_alone() {
    let endpoint = |text: &str| KeyArn::parse(text).map(|arn| arn.endpoint());
    for (text, expected) in [
        (ARN, "https://kms.eu-west-1.amazonaws.com"),
        ("arn:aws-cn:kms:cn-north-1:1:key/a", "https://kms.cn-north-1.amazonaws.com.cn"),
        ("arn:aws-us-gov:kms:us-gov-west-1:1:key/mrk-1", "https://kms.us-gov-west-1.amazonaws.com"),
    ] {
        assert_eq!(endpoint(text).as_deref(), Some(expected));
    }
    let long = format!("arn:aws:kms:eu-west-1:1:key/{}", "a".repeat(MAX_ARN));
    for bad in [
        "",
        "1234abcd-12ab-34cd-56ef-1234567890ab",
        "alias/asp",
        "arn:aws:kms:eu-west-1:1:alias/asp",
        "arn:aws:s3:eu-west-1:1:key/a",
        "arn:aws:kms::1:key/a",
        "arn:aws:kms:eu-west-1::key/a",
        "arn:aws:kms:eu-west-1:1:key/",
        "arn:aws:kms:eu-west-1:1:key/a/b",
        "arn:aws:kms:evil.example/:1:key/a",
        "arn:other:kms:eu-west-1:1:key/a",
        &long,
    ] {
        assert_eq!(KeyArn::parse(bad), None, "{bad}");
    }
}

#[test]
fn the_context_of_a_record_names_no_user() {
    let place = Place { tenant: "acme", table: "linked_accounts", row: "bob/github" };
    let context = serde_json::to_value(EncryptionContext::of(&place)).unwrap();
    assert_eq!((&context["asp:org"], &context["asp:table"]), (&"acme".into(), &"linked_accounts".into()));
    assert_eq!(context["asp:place"].as_str().map(str::len), Some(64));
    assert!(!context.to_string().contains("bob"));
    let other = serde_json::to_value(EncryptionContext::of(&Place { row: "eve/github", ..place })).unwrap();
    assert_ne!(context["asp:place"], other["asp:place"]);
}

#[test]
fn only_failures_that_may_pass_let_cached_keys_live_on() {
    let kms = kms();
    let label = |status, code: &str| kms.error(KmsFault::Refused { status, code: code.to_owned() }).label();
    for (status, code, expected) in [
        (400, "InvalidCiphertextException", "not_opened"),
        (400, "IncorrectKeyException", "not_opened"),
        (400, "NotFoundException", "unknown_key"),
        (400, "AccessDeniedException", "refused"),
        (400, "DisabledException", "refused"),
        (400, "KMSInvalidStateException", "refused"),
        (400, "without a reason", "refused"),
        (400, "ExpiredTokenException", "unavailable"),
        (400, "ThrottlingException", "unavailable"),
        (429, "without a reason", "unavailable"),
        (500, "KMSInternalException", "unavailable"),
        (503, "without a reason", "unavailable"),
    ] {
        assert_eq!(label(status, code), expected, "{status} {code}");
    }
    assert_eq!(kms.error(KmsFault::Silent("gone".into())).label(), "unavailable");
    assert_eq!(kms.error(KmsFault::Resting).label(), "unavailable");
}

#[tokio::test]
async fn a_record_that_names_a_strangers_key_is_refused_without_a_request() {
    let kms = kms();
    let place = Place { tenant: "acme", table: "linked_accounts", row: "bob/github" };
    let wrapped = WrappedKey { key_id: ARN.replace("1234abcd", "deadbeef"), bytes: vec![1] };
    let refused = kms.unwrap(&wrapped, &place).await.unwrap_err();
    assert!(matches!(refused, VaultError::UnknownKey { .. }), "{refused}");
}
