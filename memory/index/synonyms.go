package index

import (
	"strings"
	"sync"
)

// synonyms are words of everyday life that people put in each other's place when they ask for what was said: a question asks
// for a child where a daughter was spoken of. By stem, the stems of the others.
var synonyms = sync.OnceValue(func() map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(`
		child kid son daughter toddler baby boy girl
		parent mother father mom dad
		mother mom
		father dad
		sibling brother sister
		husband spouse partner wife married marriage
		wedding marry marriage married bride
		boyfriend girlfriend partner dating
		grandmother grandma granny grandparent
		grandfather grandpa grandparent
		relative family cousin aunt uncle nephew niece
		friend buddy pal mate
		job work career profession occupation position employment
		employer company firm boss
		colleague coworker teammate
		salary pay income wage
		hire hired recruit job
		fired laid quit resign lost
		business shop store startup company
		money cash finance financial fund
		buy purchase bought get acquire order
		sell sold sale
		cost price expensive cheap dollars
		gift present birthday
		receive get got given
		give donate donation gift
		house home apartment flat condo place
		move moved relocate moving
		live reside home based
		city town
		country nation
		trip travel journey vacation holiday tour
		visit went trip tour
		hike hiking trail trek mountain
		camp camping tent campfire
		beach ocean sea coast
		lake river water
		car vehicle automobile truck
		bike bicycle cycling ride
		plane flight fly flying
		train railway
		run running jog marathon race
		exercise workout gym fitness training
		sport game team athlete
		basketball hoop court
		soccer football
		swim swimming pool
		dance dancing dancer
		yoga meditation meditate
		hobby pastime interest activity passion
		favorite prefer love best
		like enjoy love fond
		dislike hate
		pet dog cat animal puppy kitten
		dog puppy pup canine
		cat kitten kitty
		bird parrot
		plant garden flower gardening
		tree forest wood
		food meal dish cuisine eat
		cook cooking bake recipe kitchen
		dinner supper meal
		breakfast brunch meal
		dessert cake cookie pastry sweet
		drink beverage coffee tea
		restaurant cafe diner bistro
		vegetable veggie vegetarian vegan
		allergy allergic intolerant
		ill sick illness disease unwell
		doctor physician clinic hospital
		hospital clinic surgery
		injury injured hurt accident wound broke
		health healthy wellness
		diet nutrition eating weight
		medicine medication pill drug
		therapy therapist counseling counselor
		stress anxiety anxious overwhelmed worried
		sad upset unhappy depressed
		happy glad joyful excited thrilled
		angry mad annoyed frustrated
		scared afraid fear terrified
		proud pride
		die death passed funeral lost
		born birth birthday
		old age aged
		big large huge
		small little tiny
		begin start launch
		finish end complete
		stop quit
		learn study class course lesson
		school university college campus
		teacher instructor professor coach
		student pupil
		degree diploma graduate graduation
		exam test
		book novel reading author
		read reading book
		write writing writer author
		poem poetry poet
		film movie cinema
		show series tv
		song music track tune
		band group concert
		concert gig festival performance
		instrument guitar piano violin drum
		paint painting painter art artwork
		draw drawing sketch
		art artist artwork gallery exhibit
		photo picture image camera photography
		craft handmade pottery sewing knitting
		game gaming videogame console
		computer laptop pc
		phone smartphone mobile cell
		internet online web website
		app application software program
		code coding programming developer
		error bug failure issue problem
		problem issue challenge difficulty trouble
		help support assist aid
		volunteer volunteering charity nonprofit
		charity fundraiser donation
		shelter rescue
		community neighborhood
		church faith religion religious
		politics political election campaign
		army military veteran soldier
		police officer
		lawyer attorney legal
		law legal court
		meet met encounter
		talk chat discuss conversation
		call phone
		message text email mail
		letter note mail
		plan intend planning going
		goal aim dream ambition
		dream aspire wish
		hope wish
		idea thought suggestion
		suggest recommend advice tip
		advice suggestion tip recommend
		decide decision chose choose
		win won victory prize award
		lose lost defeat
		award prize medal trophy
		contest competition tournament
		event party celebration ceremony
		party celebrate celebration
		project initiative
		meeting conference workshop
		group club organization team
		join joined member
		own have
		clothes clothing outfit dress wear
		shoe sneaker boots
		necklace jewelry ring bracelet
		hair haircut
		color colored
		symbol symbolize represent meaning
		reason because why
		inspire inspiration motivate motivation
		identity gender transgender
		origin hometown native from
		nationality country origin
		weather rain snow storm
		storm hurricane flood
		night evening
		morning dawn
		sunset sunrise
		winter snow
		summer
		adopt adoption adopting
		pregnant pregnancy expecting
		divorce divorced separated breakup
		relationship dating single partner
		engaged engagement fiance
		neighbor neighbour
		key keys
		repair fix mend
		build construct built
		clean cleaning tidy
		teach taught teaching lesson
		deploy deployment release rollout
		database db postgres mysql
		server host machine
		password credential secret
		config configuration setting
		directory folder path
		function method
		test testing tests`) {
		words := strings.Fields(line)
		for i := range words {
			words[i] = string(stem([]byte(words[i])))
		}
		for i, w := range words {
			for j, o := range words {
				// The first two are the general words: they stand for the others, and these for them.
				if min(i, j) < 2 && i != j && w != o {
					all[w] = append(all[w], o)
				}
			}
		}
	}
	return all
})
