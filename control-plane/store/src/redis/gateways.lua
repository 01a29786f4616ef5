-- A gateway is there, or leaves.
-- KEYS: a sorted set of gateways by the milliseconds until which each is taken to be there.
-- ARGV: the gateway, and the milliseconds for which it is; 0: it leaves.
-- Answers {number of gateways, place of this one among them in the order of their names, from 0}.
local time = redis.call('TIME')
local ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ms)
local lease = tonumber(ARGV[2])
if lease == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], string.format('%.0f', ms + lease), ARGV[1])
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', lease))
end
local names = redis.call('ZRANGE', KEYS[1], 0, -1)
table.sort(names)
local place = 0
for i, name in ipairs(names) do if name == ARGV[1] then place = i - 1 end end
return {#names, place}
