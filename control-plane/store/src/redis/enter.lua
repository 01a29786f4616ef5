-- A session is at a gateway, and what is known of it; or its client sets the level of its log messages.
-- KEYS: the session, a hash: "ended"; "level"; and by "g" and the gateway's id a number that grows with each that enters.
-- ARGV: milliseconds for which it is kept at least, most gateways, the gateway or "", the level or "".
-- Answers {} where it has ended, else {level or "", the other gateways…}.
local known = redis.call('HGETALL', KEYS[1])
local level, gateways, last = '', {}, 0
for i = 1, #known, 2 do
  local field, value = known[i], known[i + 1]
  if field == 'ended' then return {} end
  if field == 'level' then level = value end
  if string.sub(field, 1, 1) == 'g' then
    last = math.max(last, tonumber(value))
    if field ~= 'g' .. ARGV[3] then table.insert(gateways, {id = string.sub(field, 2), at = tonumber(value)}) end
  end
end
table.sort(gateways, function(a, b) return a.at < b.at end)
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'g' .. ARGV[3], last + 1)
  if #gateways >= tonumber(ARGV[2]) then redis.call('HDEL', KEYS[1], 'g' .. gateways[1].id) end
end
if ARGV[4] ~= '' then
  level = ARGV[4]
  redis.call('HSET', KEYS[1], 'level', level)
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
local answer = {level}
for _, gateway in ipairs(gateways) do table.insert(answer, gateway.id) end
return answer
