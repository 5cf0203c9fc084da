-- Make a timeline the job's current one and forget what older ones had out, unless a newer one has come.
-- KEYS: 1 timeline, 2 seen, 3 orders out, 4 cancelled. ARGV: 1 timeline. Returns 1 when taken over.
local current = tonumber(redis.call('GET', KEYS[1]) or '0')
if current > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
return 1
