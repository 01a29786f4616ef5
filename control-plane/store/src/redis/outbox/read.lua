-- What is kept of a call from a number on.
-- KEYS: the call and its entries, as append.lua keeps them. ARGV: the number.
-- Answers false where no log was begun, else {the log, the number that comes next, the entries from that number on}.
local known = redis.call('HMGET', KEYS[1], 'log', 'next')
if not known[1] then return false end
local count = tonumber(known[2]) - tonumber(ARGV[1])
if count <= 0 then return {known[1], known[2], {}} end
-- From the end, so that what is older than all of them asks for all.
return {known[1], known[2], redis.call('LRANGE', KEYS[2], string.format('%.0f', -count), -1)}
