# The certificate of a machine, and its key.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=press-7" \
  -addext extendedKeyUsage=clientAuth -keyout press-7.key -out press-7.crt 2>/dev/null
source .asp/env
