# bash completion of gpumem, made by gpumem help --completion bash
_gpumem()
{
	local word="${COMP_WORDS[COMP_CWORD]}" words='' i
	local before="${COMP_WORDS[COMP_CWORD - 1]}"
	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ] || { [ "$COMP_CWORD" -eq 2 ] && [ "${COMP_WORDS[1]}" = help ] &&
		[ "${word#-}" = "$word" ]; }; then
		words='@verbs@'
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
		return
	fi
	# The command of run: behind --, or the first word that is no option nor its value.
	if [ "${COMP_WORDS[1]}" = run ]; then
		for ((i = 2; i <= COMP_CWORD; i++)); do
			case "${COMP_WORDS[i - 1]}/${COMP_WORDS[i]}" in
			--/*) break ;;
			*/-*|*/=|=/*) ;;
			-q/*|--quiet/*) break ;;
			--*/*) ;;
			*) break ;;
			esac
		done
		if [ "$i" -lt "$COMP_CWORD" ] && declare -F _command_offset >/dev/null; then
			_command_offset "$i"
			return
		elif [ "$i" -eq "$COMP_CWORD" ]; then
			mapfile -t COMPREPLY < <(compgen -c -- "$word"; compgen -f -- "$word")
			compopt -o filenames
			return
		fi
	fi
	# --option=VALUE is three words.
	[ "$word" != = ] || word=''
	[ "$before" != = ] || before="${COMP_WORDS[COMP_CWORD - 2]}"
	case "${COMP_WORDS[1]} $before" in
@values@
	esac
	if [ -n "$words" ]; then
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
		return
	fi
	case "${COMP_WORDS[1]}" in
@options@
	esac
	if [ "${word#-}" != "$word" ]; then
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
		[ "${COMPREPLY[0]: -1}" != = ] || compopt -o nospace
	elif [[ ${COMP_WORDS[1]} = @(top|snapshot|ctl) ]]; then
		words=$("${COMP_WORDS[0]}" help --completion pids 2>/dev/null | cut -f 1)
		case "${COMP_WORDS[1]} $before" in
		top*) words+=' all' ;;
		'ctl history') words='on off state' ;;
		'ctl memory-limit') words=none ;;
		ctl*) words+=' history reset-peaks empty-cache memory-limit' ;;
		esac
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		compopt -o filenames
	fi
}
complete -F _gpumem gpumem
