# What `openssl ca` needs of an authority.
cat >ca.cnf <<'END'
[ca]
default_ca = asp
[asp]
database = index.txt
certificate = ca.crt
private_key = ca.key
default_md = sha256
crlnumber = crlnumber
END
touch index.txt
echo 01 >crlnumber
