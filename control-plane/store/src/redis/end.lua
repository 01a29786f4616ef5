-- A session has ended.
-- KEYS: the session, as enter.lua keeps it. ARGV: milliseconds for which that is remembered.
-- Answers the gateways that it was at.
local gateways = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 1) == 'g' then table.insert(gateways, string.sub(field, 2)) end
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'ended', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return gateways
